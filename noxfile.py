"""What CI runs, one session each; `nox -l` lists them.

nox -s tests                 in an environment of its own, under .nox
nox -R -s tests              the same environment again, nothing re-installed
nox --no-venv -s tests       in the environment that nox itself runs in, nothing installed
"""

from __future__ import annotations

import os

import nox

# venv and pip, because constraints.txt names the CPU build of torch that they find and other installers may not.
nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "tests", "doctests", "docs"]
nox.needs_version = ">=2024.10"

EXAMPLE = "tests/plugin_example"
TRITON = "triton==3.7.1"  # that of torch 2.13.0 for CUDA; not in constraints.txt, whose torch for the CPU has none


def install(session: nox.Session, *packages: str, constraints: str = "constraints.txt") -> None:
    """Installs under the constraints; does nothing under --no-venv."""
    if session.virtualenv.is_sandboxed:
        session.install("-c", constraints, *packages)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; arguments after -- go to pytest (-- -m slow for the slow ones)."""
    install(session, "-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the slow tests, all of them; -- --part 2/4 for the second quarter."""
    install(session, "-e", ".[test]")
    session.run("pytest", "-m", "slow", *session.posargs)


@nox.session
def triton(session: nox.Session) -> None:
    """Run the Triton kernels in Triton's interpreter, and compile them for GPUs; needs none. Linux on x86-64 or Arm."""
    install(session, "-e", ".", "pytest", "pytest-xdist", "hypothesis", "beartype")
    if session.virtualenv.is_sandboxed:
        session.install(TRITON)
    kernels = {"TRITON_CACHE_DIR": session.create_tmp()}
    # the flag is read when Triton is imported, and what it makes of a kernel cannot be compiled: two processes
    session.run("pytest", "-n", "0", "tests/ops/test_triton_machine_code.py", *session.posargs, env=kernels)
    interpreted = kernels | {"TRITON_INTERPRET": "1"}
    files = ("tests/ops/test_triton_interpreted.py",)
    session.run("pytest", "-n", "0", *files, *session.posargs, env=interpreted)


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the tests with the oldest versions that pyproject.toml allows."""
    install(session, "-e", ".[test]", constraints="constraints-lowest.txt")
    # old packages warn of what newer ones beside them are about to change
    session.run("pytest", "-W", "default", *session.posargs)


@nox.session
def grids(session: nox.Session) -> None:
    """Check every point of every shipped grid: it resolves and trains two steps; -- -k NAME for some grids."""
    install(session, "-e", ".[test]")
    workers = str(min(4, os.cpu_count() or 1))  # `auto` means none for a single file
    session.run("pytest", "-n", workers, "-m", "slow or not slow", "tests/experiments/test_grids.py", *session.posargs)


@nox.session
def doctests(session: nox.Session) -> None:
    """Run the examples in docstrings."""
    install(session, "-e", ".[test]")
    # kernels in Triton cannot be imported without it, and have no examples
    kernels = "--ignore-glob=slotbench/ops/_cuda/triton_*.py"
    packages = ("slotbench", "plugins/slotbench_plugins")
    session.run("pytest", "-n", "0", "--doctest-modules", kernels, *packages, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting."""
    install(session, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the framework and of the built-in plugins."""
    install(session, "-e", ".", "mypy")
    session.run("mypy", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a broken link is an error."""
    install(session, "-e", ".[docs]")
    session.run("mkdocs", "build", "--strict", *session.posargs, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def slurm(session: nox.Session) -> None:
    """Run a grid on a SLURM of its own; needs root, and apt's slurmctld slurmd slurm-client munge."""
    install(session, "-e", ".[test,grid]")
    session.run("pytest", "-n", "0", "-m", "slow", "tests/slurm", *session.posargs)


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Run the benches at their smallest size, to see that they run; the numbers mean nothing."""
    install(session, "-e", ".[test]")
    scratch = session.create_tmp()
    session.run("slotbench", "bench", "cores", "SlotSSM", "--quick", "--out", scratch)
    session.run("slotbench", "bench", "ops", "--seconds", "0.1")
    for script in ("models.py", "metrics.py", "simulators.py", "gpu.py"):
        session.run("python", f"benchmarks/{script}", "--quick")


@nox.session
def plugin_example(session: nox.Session) -> None:
    """Install a third-party distribution, list its core, keep it to the laws, and train it by name."""
    beside, env = session.create_tmp(), {}
    if session.virtualenv.is_sandboxed:
        install(session, "-e", ".[test]")
        install(session, f"./{EXAMPLE}")
    else:
        # Beside the environment, not into it: whoever lent it gets it back unchanged.
        session.run(
            "python", "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", beside, f"./{EXAMPLE}"
        )
        env["PYTHONPATH"] = beside
    listed = session.run("slotbench", "plugins", "cores", env=env, silent=True)
    if not isinstance(listed, str) or "LeakyIntegrator" not in listed:
        session.error(f"`slotbench plugins cores` does not list LeakyIntegrator:\n{listed}")
    session.run("pytest", "-n", "0", "tests/contracts", "-k", "LeakyIntegrator", env=env)
    config = f"{EXAMPLE}/experiments/leaky_balls.yaml"
    session.run("slotbench", "fit", "--config", config, "--trainer.max_steps", "2", "--runs_dir", beside, env=env)


@nox.session
def new_plugin(session: nox.Session) -> None:
    """Write a package with `slotbench new plugin`, install it, and run its tests."""
    install(session, "-e", ".[test]")
    session.run("pytest", "-n", "0", "-m", "slow", "tests/templates/test_new_plugin.py", *session.posargs)
