"""A task that was built in Python is built again from its checkpoint, or a sentence says why it cannot."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial

import pytest
import torch
from lightning.pytorch import Trainer
from torch.optim import Adam

import slotbench
from slotbench.errors import UserError
from slotbench.interfaces import DataSpec, VideoSpec
from slotbench.tasks.saving.saved_arguments import UnsavedError, built_arguments, saved_arguments
from slotbench.tasks.slot_autoencoding import SlotAutoencoding
from slotbench.tasks.slot_task import SlotTask

FRAME = VideoSpec(channels=3, height=16, width=16)


def task(**arguments) -> SlotAutoencoding:
    given = {
        "encoder": slotbench.factory("CNNEncoder", dim=8, channels=(8, 8, 8, 8)),
        "core": slotbench.factory("SAVi", num_slots=2, dim=8, aggregation=slotbench.factory("WeightedSum", scale=3.0)),
        "decoder": slotbench.factory("SpatialBroadcastDecoder", channels=4),
        "optimizer": partial(Adam, lr=0.5),
        "data_spec": DataSpec(FRAME, FRAME),
    }
    return SlotAutoencoding(**(given | arguments))


def saved(task: SlotTask, path):
    """The file that a plain Trainer saves."""
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy.connect(task)
    trainer.save_checkpoint(path)
    return path


def test_a_task_of_factories_is_built_again_from_its_checkpoint_alone(tmp_path):
    before = task()
    after = SlotAutoencoding.load_from_checkpoint(saved(before, tmp_path / "task.ckpt"))
    assert {**after.hparams} == {**before.hparams}
    assert after.core.corrector.attention.aggregation.scale == 3.0
    for name, value in before.state_dict().items():
        torch.testing.assert_close(after.state_dict()[name], value)


def test_a_task_of_lambdas_says_that_it_cannot_be_built_again_and_takes_its_arguments_anew(tmp_path):
    given = {"encoder": lambda spec: slotbench.build("CNNEncoder", spec, dim=8, channels=(8, 8, 8, 8))}
    path = saved(task(**given), tmp_path / "task.ckpt")
    with pytest.raises(UserError, match="holds weights, and not what SlotAutoencoding was built from"):
        SlotAutoencoding.load_from_checkpoint(path)
    given |= {"core": slotbench.factory("SAVi", num_slots=2, dim=8, aggregation=slotbench.factory("WeightedSum"))}
    given |= {"decoder": slotbench.factory("SpatialBroadcastDecoder", channels=4), "data_spec": DataSpec(FRAME, FRAME)}
    assert SlotAutoencoding.load_from_checkpoint(path, **given).core.slot_spec.num_slots == 2


def test_what_no_other_program_can_import_is_not_saved():
    class Local:
        pass

    for value in (Local, partial(Local), lambda: None, partial(Adam, "positional"), torch.zeros(1), {"a": object()}):
        with pytest.raises(UnsavedError):
            saved_arguments({"core": value})


class Own(torch.nn.Module):
    """A part of the user's, in a module that is imported."""


@pytest.mark.parametrize(
    "path",
    [
        "os.system",
        "subprocess.Popen",
        "antigravity.geohash",
        "not_here.Core",
        "slotbench.io.read_text",
        "torch.load",
    ],
)
@pytest.mark.parametrize("place", ["core", "aggregation"])
def test_a_checkpoint_names_no_function_and_no_class_that_is_no_part_of_a_model(path, place, tmp_path):
    file = saved(task(), tmp_path / "task.ckpt")
    content = torch.load(file, weights_only=True)
    named = {"class_path": path, "init_args": {}}
    if place == "core":
        content["hyper_parameters"]["core"] = named
    else:
        content["hyper_parameters"]["core"]["init_args"]["aggregation"] = named
    torch.save(content, file)
    with pytest.raises(UserError, match=f"{place} of the checkpoint is {path}, which is no part of a model"):
        SlotAutoencoding.load_from_checkpoint(file)
    assert "antigravity" not in sys.modules


def test_a_checkpoint_imports_nothing_that_is_not_installed_as_a_component(tmp_path, monkeypatch):
    (tmp_path / "lies_here.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="import lies_here before, if it is yours"):
        built_arguments(SlotAutoencoding, {"core": {"class_path": "lies_here.Core"}})


def test_ones_own_class_is_taken_where_it_is_imported_and_text_is_no_factory():
    built = built_arguments(SlotAutoencoding, {"core": {"class_path": f"{__name__}.Own"}, "init_from": "os.system"})
    assert built["core"].func is Own
    assert built["init_from"] == "os.system"
    with pytest.raises(UserError, match=r"encoder of the checkpoint is os\.system"):
        built_arguments(SlotAutoencoding, {"encoder": "os.system"})


def test_a_list_becomes_the_tuple_that_the_argument_is():
    given = {"encoder": {"class_path": "slotbench_plugins.encoders.cnn_encoder.CNNEncoder", "init_args": {}}}
    given["encoder"]["init_args"] = {"channels": [8, 8, 8, 8]}
    assert built_arguments(SlotAutoencoding, given)["encoder"].keywords == {"channels": (8, 8, 8, 8)}


def test_a_checkpoint_of_a_training_by_a_command_is_read_too():
    """The parser saves lists for tuples, its own keys, and the data's sizes as a dictionary."""
    core = {"class_path": "slotbench_plugins.cores.savi.SAVi", "init_args": {"num_slots": 2, "dim": 8}}
    given = {
        "core": core,
        "data_spec": asdict(DataSpec(FRAME, FRAME)),
        "_instantiator": "os.system",
        "_class_path": "x",
    }
    built = built_arguments(SlotAutoencoding, given)
    assert set(built) == {"core", "data_spec"}
    assert built["data_spec"] == DataSpec(FRAME, FRAME)
    assert built["core"].keywords == {"num_slots": 2, "dim": 8}
