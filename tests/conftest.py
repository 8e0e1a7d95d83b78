"""What every test file relies on: one thread, shapes that can be checked, hypothesis profiles, GPU tests on GPUs alone.

Runs in every worker process of pytest-xdist as well as in the process that starts them.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import config as jaxtyping_config
from jaxtyping import install_import_hook
from parts import keep_part

# Small tensors are slower on several threads than on one, and the workers share the cores. torch reads this on import.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

# wandb reads the metadata of every installed package as each run starts, to list them: most of a short run's time.
os.environ["WANDB_X_SAVE_REQUIREMENTS"] = "false"

# Tests start many processes: each of them would compile the packages anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).resolve().parents[1]
CHECKED_PACKAGES = ["slotbench", "slotbench_plugins"]


class _UncheckedModules:
    """Leaves modules as they are that have no shapes to check, or kernels, which cannot be compiled in a wrapper.

    Wrapping a function and calling it wrapped takes time; types without shapes are what mypy looks at.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in CHECKED_PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            return None
        text = Path(spec.origin).read_text(encoding="utf-8")
        has_kernels = re.search(r"\bnjit\b|\btriton\.jit\b", text)
        return spec if has_kernels or "jaxtyping" not in text else None


install_import_hook(CHECKED_PACKAGES, "beartype.beartype")
sys.meta_path.insert(0, _UncheckedModules)
# checking takes up to a third of the time: shapes are checked in contracts, and everywhere at night (CHECK_SHAPES=1)
jaxtyping_config.update("jaxtyping_disable", os.environ.get("CHECK_SHAPES") != "1")

# No deadline: the first call of a compiled kernel takes seconds. On a CI machine every run draws the same examples.
settings.register_profile("local", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", parent=settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("fixed" if os.environ.get("CI") else "local")


def _with_shapes(checked: bool) -> Iterator[None]:
    before = jaxtyping_config.jaxtyping_disable
    jaxtyping_config.update("jaxtyping_disable", not checked)
    yield
    jaxtyping_config.update("jaxtyping_disable", before)


@pytest.fixture(scope="module")
def checked_shapes() -> Iterator[None]:
    """For modules whose calls are to have the shapes that their annotations say: the contracts."""
    yield from _with_shapes(True)


@pytest.fixture(scope="module")
def unchecked_shapes() -> Iterator[None]:
    """For modules of contracts that repeat calls whose shapes others check, and at night."""
    yield from _with_shapes(False)


# optional: without pytest-xdist, as on a machine with what the tests marked gpu need and no more, nobody calls it
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto` of pyproject.toml: the cores, four at most, for whole folders; none for single files and test names."""
    if any(Path(argument.partition("::")[0]).suffix == ".py" for argument in config.args):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, cores) if cores > 1 else 0


@pytest.fixture(autouse=True)
def plugin_files_leave_no_trace() -> Iterator[None]:
    """A plugin file that a test has written is no module of the next test's."""
    path, modules = [*sys.path], set(sys.modules)
    yield
    sys.path[:] = path
    temporary = Path(tempfile.gettempdir()).resolve()
    for name in set(sys.modules) - modules:
        file = Path(getattr(sys.modules[name], "__file__", None) or "").resolve()
        ours = file.is_relative_to(ROOT) or file.is_relative_to(sys.prefix)  # these may lie in the temporary folder too
        if file.is_relative_to(temporary) and not ours:
            del sys.modules[name]


@pytest.fixture(autouse=True)
def wandb_keys_leave_no_trace() -> Iterator[None]:
    """wandb keeps the key that it has found, and its settings, for the process: no test finds another one's."""
    yield
    auth = sys.modules.get("wandb.sdk.lib.wbauth")
    if auth is not None and auth.unauthenticate_session(update_settings=True) is not None:
        sys.modules["wandb"].teardown()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="run the K-th of N parts of the tests, for machines side by side")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Garbage collections pass over what is there before the first test: benchmarks collect before each measurement."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    keep_part(config, items)
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
