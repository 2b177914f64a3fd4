#!/usr/bin/env bash
# Training on several nodes under Slurm: sbatch examples/slurm.sh photos.zpk
#
# One task for each GPU. The ranks find each other by Slurm's own variables (srun), and numbers
# travel by NCCL. The job asks to be started again after a failure of a node, and goes on from its
# last checkpoint.
#
#SBATCH --job-name=zonal
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=12
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --output=zonal-%j.log
set -euo pipefail

data=${1:?usage: sbatch examples/slurm.sh DATA [option...]}
shift
run=runs/slurm-$SLURM_JOB_ID

# All tasks of a step end when one has failed; without this the others wait for their deadline.
srun=(srun --kill-on-bad-exit=1)

# One check before hours of training: every rank answers, and how fast the links are.
"${srun[@]}" zonal bench dist --device cuda --method mmd-heat --batch 8192

if [[ -e $run/config.toml ]]; then
    "${srun[@]}" zonal train --resume "$run"
else
    "${srun[@]}" zonal train "$data" --out "$run" --device cuda "$@"
fi
