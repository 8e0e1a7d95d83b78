"""The package itself: components built by name, and an import that costs nothing."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import slotbench
from slotbench import registry
from slotbench.errors import UserError
from slotbench.interfaces import TokenSpec, VideoBatch, VideoSpec
from slotbench.registry import RegistryError


def test_importing_the_package_and_its_public_names_imports_no_torch():
    code = (
        "import sys, slotbench, slotbench.nn, slotbench.metrics, slotbench.data, slotbench.evaluation\n"
        "slotbench.build, slotbench.factory, slotbench.load_run\n"
        "print([name for name in ('torch', 'lightning', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["nn", "data", "metrics", "evaluation"])
def test_every_public_name_of_a_package_is_there(package):
    module = importlib.import_module(f"slotbench.{package}")
    assert set(module.__all__) <= set(dir(module))
    assert [name for name in module.__all__ if getattr(module, name).__name__ != name] == []


def test_a_layer_and_the_base_of_the_data_sets_are_where_people_look_for_them():
    from slotbench.data import SlotDataModule
    from slotbench.nn import InvertedAttention

    assert issubclass(registry.load("datasets", "BouncingBalls"), SlotDataModule)
    assert InvertedAttention.__module__.startswith("slotbench.nn.")


def test_a_component_is_built_by_its_name_from_sizes_and_arguments():
    core = slotbench.build("SlotSSM", TokenSpec(dim=16, num_tokens=4), num_slots=3)
    assert type(core) is registry.load("cores", "SlotSSM")
    assert core.slot_spec.num_slots == 3


def test_a_factory_leaves_the_sizes_to_the_task():
    make = slotbench.factory("PatchEncoder", kind="encoders", dim=16)
    assert make(VideoSpec(channels=3, height=16, width=16)).token_spec.dim == 16


def test_a_misspelt_name_is_an_error_with_the_name_that_is_near():
    with pytest.raises(RegistryError, match=r"no component named SlotSMM; did you mean SlotSSM\?"):
        slotbench.build("SlotSMM")


def test_a_name_without_a_near_one_is_an_error_that_says_where_the_names_are():
    with pytest.raises(RegistryError, match="no component named Qqqq; slotbench plugins lists"):
        slotbench.build("Qqqq")


def test_a_name_of_two_kinds_needs_its_kind(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("encoders")(type("SlotSSM", (registry.load("encoders", "PatchEncoder"),), {}))
    with pytest.raises(RegistryError, match="SlotSSM is the name of an encoder and a core: say which by kind="):
        slotbench.factory("SlotSSM")
    assert slotbench.factory("SlotSSM", kind="cores").func is registry.load("cores", "SlotSSM")


def test_a_component_is_a_name_of_the_package():
    from slotbench import SlotSSM, VideoFolder

    assert SlotSSM is registry.load("cores", "SlotSSM")
    assert VideoFolder is registry.load("datasets", "VideoFolder")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fit", "lightning.Trainer(max_steps=1000).fit(task, data), or slotbench fit in a terminal"),
        ("train", ".fit(task, data)"),
        ("test", ".test(task, data)"),
        ("load", "did you mean load_run?"),
        ("from_pretraned", "did you mean from_pretrained?"),
    ],
)
def test_a_first_guess_is_answered(name, said):
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(slotbench, name)


@pytest.mark.parametrize("kinds", [["pretrained"], []])
def test_the_kinds_that_can_be_listed_have_the_models_among_them(kinds):
    with pytest.raises(RegistryError, match=r"kinds: encoders, .*, schedules, models"):
        slotbench.list(*kinds)
    assert [row.name for row in slotbench.list("model")] == [row.name for row in slotbench.list("models")]


def test_a_video_of_the_size_of_the_training_is_read_as_an_array_and_as_a_tensor(tmp_path):
    task = slotbench.from_pretrained("movi_like_savi")
    video = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    frames = VideoBatch.from_numpy(video).frames
    with torch.no_grad():
        expected = task.predict(VideoBatch(frames))
        for given in (video, frames):
            assert torch.equal(task.predict(given)["labels"], expected["labels"])
            assert torch.equal(task(given).masks, task(VideoBatch(frames)).masks)
    with pytest.raises(UserError, match=r"frames of shape \[1, 3, 3, 16, 16\]; expected \[3, 32, 32\]"):
        task.predict(video[:, :16, :16])
    task.save_pretrained(tmp_path / "new" / "copy")
    again = slotbench.from_pretrained(tmp_path / "new" / "copy", device="meta")
    assert {weight.device.type for weight in again.parameters()} == {"meta"}
    assert again.state_dict().keys() == task.state_dict().keys()


def test_a_prediction_is_made_of_an_array_too():
    task = slotbench.from_pretrained("moving_mnist_convs5")
    frame = task.data_spec.input
    video = np.zeros((task.context + 1, frame.height, frame.width, frame.channels), dtype=np.float32)
    with torch.no_grad():
        assert task.predict(video)["frames"].shape[:2] == (1, task.horizon)


def test_parts_that_are_built_are_not_written_down(tmp_path):
    frame = VideoSpec(channels=3, height=16, width=16)
    encoder = slotbench.build("PatchEncoder", frame)
    core = slotbench.build("SlotSSM", encoder.token_spec)
    decoder = slotbench.build("SpatialBroadcastDecoder", core.slot_spec, frame)
    task = slotbench.build("SlotAutoencoding", encoder=encoder, core=core, decoder=decoder)
    with pytest.raises(UserError, match="the task's encoder, core, decoder cannot be written down"):
        task.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_clip_of_a_data_set_is_one_of_its_training_split(tmp_path):
    np.save(tmp_path / "v.npy", np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3), dtype=np.uint8))
    data = slotbench.build("VideoFolder", path=str(tmp_path / "v.npy"), resolution=32)
    assert torch.equal(data[0].frames, data.dataset("train")[0].frames)
    assert data[0].frames.shape == (1, 6, 3, 32, 32)


def test_a_run_that_is_not_there_is_an_error_in_a_sentence(tmp_path):
    with pytest.raises(UserError, match="absent"):
        slotbench.load_run(tmp_path / "absent")
