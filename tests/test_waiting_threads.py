"""Threads that wait soon sleep unless the environment says otherwise, and that is said before torch can be imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def said(code, **variables):
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean | variables, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("module", ["slotbench", "slotbench.__main__", "slotbench.tasks.optimisation"])
def test_it_is_said_by_whatever_is_imported_first(module):
    code = f"import os, sys; import {module}; print(os.environ['GOMP_SPINCOUNT'])"
    assert said(code) == ["10000"]


@pytest.mark.parametrize("variable", VARIABLES)
def test_who_has_said_how_threads_wait_is_heeded(variable):
    code = f"import os, slotbench; print(*[os.environ.get(name, '-') for name in {VARIABLES}])"
    assert said(code, **{variable: "7"}) == ["7" if name == variable else "-" for name in VARIABLES]
