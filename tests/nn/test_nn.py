"""The layers that can be taken from `slotbench.nn` itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import slotbench.nn

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", slotbench.nn.__all__)
def test_a_layer_is_that_of_its_own_module(name):
    layer = getattr(slotbench.nn, name)
    assert layer.__name__ == name
    assert name in sys.modules[layer.__module__].__all__


def test_every_layer_that_the_documentation_takes_from_the_package_is_there():
    text = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    named = set(re.findall(r"slotbench\.nn\.([A-Z]\w*)", text))
    (list_of_layers,) = re.findall(r"Most of a core is there already, in `slotbench.nn`:(.*?)\n\n", text, re.DOTALL)
    named |= set(re.findall(r"`([A-Z]\w*)`", list_of_layers))
    assert "InvertedAttention" in named
    assert named <= set(slotbench.nn.__all__)


def test_importing_the_package_imports_no_torch():
    code = "import sys, slotbench, slotbench.nn; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
