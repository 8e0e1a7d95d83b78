"""A function in a copy of this process: a process of its own that need not import torch and Lightning again."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable

from jaxtyping import config as jaxtyping_config

__all__ = ["Forked"]


class Forked:
    """Runs `function(*arguments)` in a forked process, where warnings are shown and shapes are not checked.

    Not for what is about imports, and not for a parent that has threads which the function needs.
    """

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._printed = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        with warnings.catch_warnings():
            # newer Pythons warn of a fork of a process with threads, such as a worker of pytest-xdist
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            self._work(function, *arguments)

    def output(self, timeout: float = 120.0) -> str:
        """What the function has written to standard output, once it has ended.

        Raises:
            AssertionError: it raised or was killed, or did not end in time; with what it printed.
        """
        until = time.monotonic() + timeout
        pid = 0
        while not pid and time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            time.sleep(0.01)
        if not pid:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        said = []
        for file in self._printed:
            file.seek(0)
            said.append(file.read().decode())
            file.close()
        assert status == 0, "".join(said)
        return said[0]

    def _work(self, function: Callable[..., object], *arguments: object) -> None:
        code = 1
        try:
            warnings.simplefilter("default")
            jaxtyping_config.update("jaxtyping_disable", True)
            for descriptor, file in enumerate(self._printed, start=1):
                os.dup2(file.fileno(), descriptor)
            sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", closefd=False) for descriptor in (1, 2))
            function(*arguments)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # no handler of the parent's runs at this process's end
            os._exit(code)
