"""`docs/scripts/switch_off.py`: what is off while a run is scored, and on again afterwards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from docs_scripts import docs_script
from slotbench_plugins.cores.rim.oc_rim import OCRIM

from slotbench.interfaces import TokenSpec


@pytest.fixture
def script():
    with docs_script("switch_off") as script:
        yield script


@pytest.fixture
def task():
    torch.manual_seed(0)
    core = OCRIM(TokenSpec(6, 4, (2, 2)), num_slots=3, dim=8, num_inputs=2, slot_init="learned").eval()
    return SimpleNamespace(core=core, decoder=SimpleNamespace(disabled_slots=()))


def test_each_way_changes_what_it_names_and_the_run_is_as_it_was(script, task):
    tokens = torch.randn(2, 4, 4, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        trained = task.core(tokens).slots
        seen = {}
        for name, off in script.ways(3).items():
            with script.switched(task, **off):
                seen[name] = task.core(tokens).slots, task.decoder.disabled_slots
            assert torch.equal(task.core(tokens).slots, trained)
    same = {name for name, (slots, _) in seen.items() if torch.equal(slots, trained)}
    assert same == {"as trained", "module 0 not drawn", "module 1 not drawn", "module 2 not drawn"}
    assert {name: drawn for name, (_, drawn) in seen.items() if drawn} == {
        **{f"without module {index}": (index,) for index in range(3)},
        **{f"module {index} not drawn": (index,) for index in range(3)},
    }


def test_the_run_is_as_it_was_after_an_error(script, task):
    with pytest.raises(RuntimeError, match="half way"), script.switched(task, communication="off", core=(1,)):
        raise RuntimeError("half way")
    assert (task.core.communication_mode, task.core.disabled_slots, task.decoder.disabled_slots) == ("full", (), ())
