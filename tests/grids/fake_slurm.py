"""Commands of SLURM that only note what they are asked, and say what a test has written down for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SCRIPTS = {
    "sbatch": 'cp "$1" "$FAKE_SLURM/script_$(ls "$FAKE_SLURM" | grep -c script_).sh"\n'
    'if [ -e "$FAKE_SLURM/refusal" ]; then cat "$FAKE_SLURM/refusal" >&2; exit 1; fi\necho "Submitted batch job 7"',
    "squeue": 'if [ -e "$FAKE_SLURM/down" ]; then exit 1; fi\ncat "$FAKE_SLURM/queue"',
    "scancel": 'echo "$@" >> "$FAKE_SLURM/cancelled"\n: > "$FAKE_SLURM/queue"',
    "srun": "exit 1",
    "scontrol": "exit 1",
}


class FakeSlurm:
    """The commands, first on the PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        for name, text in _SCRIPTS.items():
            path = folder / "bin" / name
            path.write_text(f"#!/bin/bash\n{text}\n")
            path.chmod(0o755)
        self.queue()
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_SLURM", str(folder))

    def queue(self, *rows: str) -> None:
        """What squeue says from now on: "7_0|RUNNING|node1"."""
        (self.folder / "queue").write_text("".join(f"{row}\n" for row in rows))

    def is_down(self, down: bool = True) -> None:
        """Whether squeue does not answer."""
        (self.folder / "down").touch() if down else (self.folder / "down").unlink()

    def refuses(self, message: str) -> None:
        """What sbatch says while it refuses everything."""
        (self.folder / "refusal").write_text(message)

    @property
    def scripts(self) -> list[str]:
        """What sbatch was given."""
        return [path.read_text() for path in sorted(self.folder.glob("script_*.sh"))]

    @property
    def cancelled(self) -> list[str]:
        """The jobs that scancel was given."""
        path = self.folder / "cancelled"
        return [word for word in path.read_text().split() if not word.startswith("-")] if path.exists() else []
