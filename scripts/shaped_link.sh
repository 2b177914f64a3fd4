#!/usr/bin/env bash
# Runs a command on several ranks that see each other only through slow links: to hold the model of
# zonal bench dist against a network that is not there.
#
#   scripts/shaped_link.sh RANKS RATE COMMAND [ARGUMENT...]
#   scripts/shaped_link.sh 2 1gbit build/zonal bench dist --batch 2048
#
# Each rank gets a network namespace of its own, joined to a bridge by a link of RATE (as tc writes
# it) in either direction; mpirun starts them by TCP. Needs root, iproute2 and Open MPI. All that it
# makes is removed at the end.
set -euo pipefail

if (($# < 3)); then
    echo "usage: scripts/shaped_link.sh RANKS RATE COMMAND [ARGUMENT...]" >&2
    exit 2
fi
ranks=$1 rate=$2
shift 2
for tool in ip tc mpirun unshare; do
    if ! command -v "$tool" >/dev/null; then
        echo "shaped_link: $tool is missing; install iproute2, openmpi-bin and util-linux" >&2
        exit 1
    fi
done
if [[ $(id -u) != 0 ]]; then
    echo "shaped_link: namespaces take root" >&2
    exit 1
fi

tag=zl$$
scratch=$(mktemp -d)
job=
cleanup() {
    local i
    if [[ -n $job ]]; then kill "$job" 2>/dev/null || true; fi
    for ((i = 0; i < ranks; i++)); do ip netns del "$tag-$i" 2>/dev/null || true; done
    ip netns del "$tag-hub" 2>/dev/null || true
    rm -rf "$scratch"
}
trap cleanup EXIT

ip netns add "$tag-hub"
ip -n "$tag-hub" link add hub type bridge
ip -n "$tag-hub" link set hub up
hosts=
for ((i = 0; i < ranks; i++)); do
    space=$tag-$i
    ip netns add "$space"
    ip link add net netns "$space" type veth peer name "port$i" netns "$tag-hub"
    ip -n "$tag-hub" link set "port$i" master hub up
    ip -n "$space" addr add "10.77.0.$((i + 1))/24" dev net
    ip -n "$space" link set net up
    ip -n "$space" link set lo up
    tc -n "$space" qdisc add dev net root tbf rate "$rate" burst 32kb latency 10s
    tc -n "$tag-hub" qdisc add dev "port$i" root tbf rate "$rate" burst 32kb latency 10s
    hosts+=${hosts:+,}10.77.0.$((i + 1)):1
done

# What mpirun takes for ssh: enters the namespace of the address. Ranks with one name of a machine
# would be taken for neighbours with shared memory, so each gets another.
cat >"$scratch/enter" <<AGENT
#!/bin/sh
space=$tag-\$((\${1##*.} - 1))
shift
exec ip netns exec "\$space" unshare --uts sh -c "hostname \$space; \$*"
AGENT
chmod +x "$scratch/enter"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
net=10.77.0.0/24
# shellcheck disable=SC2016 # the inner shell expands
ip netns exec "$tag-0" unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' sh "$tag-0" \
    mpirun -n "$ranks" --host "$hosts" --mca plm_rsh_agent "$scratch/enter" --bind-to none \
    --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include "$net" --mca oob_tcp_if_include "$net" \
    -x OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" "$@" &
job=$!
wait "$job"
