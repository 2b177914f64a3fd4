"""Starts the ranks of a job as launchers do: by torchrun's variables (tcp), or by mpirun (mpi)."""
import os
import shutil
import socket
import signal
import subprocess
import tempfile
import time

MPIRUN = shutil.which("mpirun")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def clean_environment(**extra):
    """Without the variables of a launcher that may have started this test."""
    names = ("RANK", "WORLD_SIZE", "MASTER_", "LOCAL_RANK", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return {**kept, "OMP_NUM_THREADS": "1", **extra}


def has_mpi(program):
    """Whether the program was built with MPI and there is an mpirun to start it."""
    linked = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return MPIRUN is not None and "libmpi" in linked.stdout


def mpirun(ranks):
    """More ranks than processors, as any user (also root), and quick to give up."""
    return [MPIRUN, "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]


MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Within one machine, which may have no ssh; and a process without rights to look into others copies twice.
    "OMPI_MCA_plm": "isolated",
    "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    # What MPI keeps at its end is not ours.
    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",
}


class Job:
    """Several processes with one output. status is 0, or the first that is not."""

    def __init__(self, kind, ranks, command, **extra):
        self.output = tempfile.TemporaryFile("w+")
        self.begun = time.monotonic()
        # Ctrl-C is heard also where these tests were started in the background, without it.
        heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        keywords = {"stdout": self.output, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL,
                    "preexec_fn": heard}
        if kind == "mpi":
            environment = clean_environment(**MPI_ENVIRONMENT, **extra)
            self.processes = [subprocess.Popen(mpirun(ranks) + command, env=environment, **keywords)]
            return
        port, self.processes = free_port(), []
        for rank in range(ranks):
            own = {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
            if kind == "tcp":
                own.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            environment = clean_environment(**{**own, **extra})
            self.processes.append(subprocess.Popen(command, env=environment, **keywords))

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def wait(self, seconds):
        """Waits for all; those that are left after so long are killed, which is a failure."""
        until, late = time.monotonic() + seconds, False
        for process in self.processes:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                late = True
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.seconds = time.monotonic() - self.begun
        codes = [process.returncode for process in self.processes]
        self.status = "late" if late else next((code for code in codes if code), 0)
        return self


def run(kind, ranks, command, seconds=60, **extra):
    return Job(kind, ranks, command, **extra).wait(seconds)
