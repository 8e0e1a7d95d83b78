"""A real SLURM on this machine, in a folder of its own: munged, slurmctld, and a slurmd for each node that it pretends.

It needs root (the daemons start jobs as their user) and Debian's packages slurmctld, slurmd, slurm-client and munge.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue")
_TEMPLATE = Path(__file__).with_name("slurm.conf.template")
_START_SECONDS = 60


def why_not() -> str:
    """What this machine lacks for a SLURM of its own; empty if nothing."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install slurmctld slurmd slurm-client munge"
    return "" if os.geteuid() == 0 else "the daemons of SLURM start jobs as their user, which needs root"


class OneNodeSlurm:
    """The daemons, from `__enter__` to `__exit__`, of nodes with so many cores, whether there are as many or not."""

    def __init__(self, nodes: int = 1, cpus: int = 4, requeue_seconds: int = 5) -> None:
        self.nodes = [f"node{index}" for index in range(1, nodes + 1)]
        self.cpus, self.requeue_seconds = cpus, requeue_seconds
        self.environment: dict[str, str] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> OneNodeSlurm:
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        # munge refuses a socket that others cannot reach
        self.folder.chmod(0o755)
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.environment:
            subprocess.run(["scancel", "--user=root"], env=self.environment, capture_output=True, timeout=60)
            _until(lambda: not self._squeue(), 40)
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        key, munge_socket = self.folder / "munge.key", self.folder / "munge.socket"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        ports = _free_ports(1 + len(self.nodes))
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} CPUs={self.cpus} "
            "RealMemory=4000"
            for name, port in zip(self.nodes, ports[1:], strict=True)
        )
        config = self.folder / "slurm.conf"
        config.write_text(
            _TEMPLATE.read_text().format(
                folder=self.folder,
                host=socket.gethostname(),
                port=ports[0],
                socket=munge_socket,
                requeue_seconds=self.requeue_seconds,
                nodes=nodes,
            )
        )
        others = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_", "SRUN_"))
        }
        environment = {**others, "SLURM_CONF": str(config)}
        environment["PATH"] = environment.get("PATH", "") + ":/usr/sbin:/sbin"
        files = {"key-file": key, "socket": munge_socket, "pid-file": "munged.pid", "log-file": "munged.log"}
        files["seed-file"] = "munged.seed"
        options = [f"--{name}={self.folder / value}" for name, value in files.items()]
        self._spawn(["munged", "--foreground", "--force", *options], environment)
        _until(munge_socket.exists, _START_SECONDS)
        self._spawn(["slurmctld", "-D", "-c"], environment)
        for name in self.nodes:
            self._spawn(["slurmd", "-D", "-N", name], environment)
        self.environment = environment
        if not _until(self._is_up, _START_SECONDS):
            raise RuntimeError(f"SLURM did not start:\n{self.logs()}")

    def _spawn(self, command: list[str], environment: dict[str, str]) -> None:
        with open(self.folder / "daemons.log", "ab") as log:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._processes.append(process)

    def _is_up(self) -> bool:
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"{process.args} ended with {process.returncode}:\n{self.logs()}")
        command = ["sinfo", "--noheader", "--Node", "--format=%T"]
        answer = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        return answer.stdout.split() == ["idle"] * len(self.nodes)

    def _squeue(self) -> str:
        command = ["squeue", "--noheader"]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60).stdout

    def logs(self) -> str:
        """The last lines of what the daemons have written."""
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _until(condition: object, seconds: float) -> bool:
    assert callable(condition)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.2)
    return False
