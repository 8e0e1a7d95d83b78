"""Metrics by name, from the package."""

import importlib
import subprocess
import sys

import slotbench.metrics


def test_every_name_is_the_one_of_its_module():
    for module, names in slotbench.metrics._MODULES.items():
        home = importlib.import_module(f"slotbench.metrics.{module}")
        for name in names:
            assert getattr(slotbench.metrics, name) is getattr(home, name)
            assert name not in slotbench.metrics._MODULES  # the module would hide it once it is imported
            assert name in home.__all__, name


def test_the_package_is_free_of_torch():
    said = "import sys, slotbench.metrics; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
