"""What a newcomer types first in Python is answered by what was meant, or by one sentence that says what to type."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import slotbench
from slotbench import registry
from slotbench.errors import UserError
from slotbench.interfaces import DataSpec, PartError, TemporalCore, TokenSpec, VideoBatch, VideoSpec
from slotbench.registry import RegistryError

FRAME = VideoSpec(channels=3, height=16, width=16)
SPEC = DataSpec(FRAME, FRAME)
PIXELS = torch.rand(2, 3, 3, 16, 16, generator=torch.Generator().manual_seed(0))  # batch time channels height width
TOKENS = TokenSpec(dim=8, num_tokens=4)


@pytest.fixture(scope="module")
def parts() -> tuple[Any, Any, Any]:
    encoder = slotbench.build("CNNEncoder", FRAME, dim=8)
    core = slotbench.build("SAVi", encoder.token_spec, num_slots=3, dim=8)
    return encoder, core, slotbench.build("SpatialBroadcastDecoder", core.slot_spec, FRAME)


@pytest.fixture(scope="module")
def task(parts: tuple[Any, Any, Any]) -> Any:
    return slotbench.build("SlotAutoencoding", encoder=parts[0], core=parts[1], decoder=parts[2], data_spec=SPEC).eval()


REFUSED: dict[str, tuple[Callable[[Any, Any, Any], Any], type[Exception], str]] = {
    "a misspelt kind": (lambda e, c, d: slotbench.list("corse"), RegistryError, r"did you mean cores\?"),
    "a misspelt argument": (
        lambda e, c, d: slotbench.build("SlotSSM", TOKENS, num_slot=4),
        TypeError,
        r"SlotSSM has no argument num_slot; did you mean num_slots\?",
    ),
    "a misspelt argument of a factory": (
        lambda e, c, d: slotbench.factory("SlotSSM", num_slot=4),
        TypeError,
        r"did you mean num_slots\?",
    ),
    "no size": (lambda e, c, d: slotbench.build("SlotSSM"), TypeError, r"it needs token_spec \(encoder\.token_spec\)"),
    "numbers for a size": (
        lambda e, c, d: slotbench.build("CNNEncoder", 3, 16, 16),
        TypeError,
        r"video_spec of CNNEncoder is a int; expected a VideoSpec: .*VideoSpec\(channels=3, height=32, width=32\)",
    ),
    "a part for its size": (
        lambda e, c, d: slotbench.build("SlotSSM", e),
        TypeError,
        r"token_spec of SlotSSM is a CNNEncoder; expected a TokenSpec: encoder\.token_spec",
    ),
    "a component of the package": (
        lambda e, c, d: slotbench.SlotSSM,
        AttributeError,
        r"slotbench\.build\('SlotSSM', \.\.\.\), or from slotbench\.cores import SlotSSM",
    ),
    "a misspelt import": (
        lambda e, c, d: exec("from slotbench.cores import SlotSMM"),
        RegistryError,
        r"no core named SlotSMM; did you mean SlotSSM\?",
    ),
    "an option that loaders have not": (
        lambda e, c, d: slotbench.build("MovingSprites", loader={"batchsize": 2}),
        ValueError,
        r"loader has no batchsize; did you mean batch_size\?; it takes batch_size, val_batch_size, num_workers",
    ),
    "a single clip": (lambda e, c, d: VideoBatch(PIXELS[0]), UserError, r"frames\[None\] of one clip"),
    "a name for a part": (
        lambda e, c, d: slotbench.build(
            "SlotAutoencoding", encoder="CNNEncoder", core=c, decoder=d, data_spec=DataSpec(FRAME, FRAME)
        ),
        PartError,
        r"encoder is 'CNNEncoder'; .* encoder=slotbench\.factory\('CNNEncoder', \.\.\.\)",
    ),
    "factories without data": (
        lambda e, c, d: slotbench.build(
            "SlotAutoencoding",
            encoder=slotbench.factory("CNNEncoder"),
            core=slotbench.factory("SAVi"),
            decoder=slotbench.factory("SpatialBroadcastDecoder"),
        ),
        ValueError,
        r"in Python pass data_spec=data\.spec",
    ),
}


@pytest.mark.parametrize("guess", REFUSED)
def test_a_first_guess_is_answered_by_a_sentence_that_says_what_to_type(
    guess: str, parts: tuple[Any, Any, Any]
) -> None:
    typed, kind, sentence = REFUSED[guess]
    with pytest.raises(kind, match=sentence) as refused:
        typed(*parts)
    assert "\n" not in str(refused.value)


def test_components_are_listed_with_paper_and_causality_and_print_as_a_table() -> None:
    cores = slotbench.list("cores")
    assert [row.name for row in cores] == registry.names("cores")
    by_name = {row.name: row for row in cores}
    assert by_name["SlotSSM"].paper.endswith('"Slot State Space Models", NeurIPS 2024')
    assert by_name["SlotSSM"].causality == "causal"
    assert by_name["PSB"].causality == "causal, or not: causal=False"
    assert len(repr(cores).splitlines()) == len(cores)
    assert repr(slotbench.list("task")) == repr(slotbench.list("tasks"))


def test_causality_is_what_the_cores_say() -> None:
    for row in slotbench.list("cores"):
        core = registry.load("cores", row.name)
        assert issubclass(core, TemporalCore)
        assert core.causal, row.name


def test_parts_are_imported_by_name_and_configurations_keep_their_paths() -> None:
    from slotbench.cores import SlotSSM
    from slotbench.data import LoaderOptions, collate
    from slotbench.encoders import CNNEncoder

    assert registry.load("cores", "SlotSSM") is SlotSSM
    assert registry.load("encoders", "CNNEncoder") is CNNEncoder
    assert slotbench.data.LoaderOptions is LoaderOptions
    assert collate.__module__ == "slotbench.data.base"


def test_frames_alone_are_a_batch_whose_steps_count_from_zero() -> None:
    batch = VideoBatch(PIXELS)
    assert batch.time.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert VideoBatch(PIXELS.numpy().astype(np.float64)).frames.dtype == torch.float32


def test_built_parts_make_a_task_that_trains_saves_and_is_loaded_with_them(
    parts: tuple[Any, Any, Any], tmp_path: Any
) -> None:
    made = dict(zip(("encoder", "core", "decoder"), parts, strict=True))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*is an instance of `nn.Module`.*")
        task = slotbench.build("SlotAutoencoding", **made, data_spec=SPEC, decay="all")
    assert task.encoder is parts[0]
    assert task.data_spec == DataSpec(FRAME, FRAME)
    torch.save(
        {"state_dict": task.state_dict(), "hyper_parameters": dict(task.hparams), "pytorch-lightning_version": "2.6"},
        tmp_path / "task.ckpt",
    )
    kind = type(task)
    with pytest.raises(UserError, match=r"missing: *encoder, core, decoder"):
        kind.load_from_checkpoint(tmp_path / "task.ckpt")
    again = kind.load_from_checkpoint(tmp_path / "task.ckpt", **made)
    assert again.hparams["decay"] == "all"


def test_a_plain_loader_joins_clips_and_a_plain_loop_trains_on_floats(parts: tuple[Any, Any, Any]) -> None:
    data = slotbench.build("BouncingBalls", num_frames=2, eval_frames=3, resolution=16)
    batch = next(iter(DataLoader(data.dataset("train"), batch_size=2, shuffle=True)))
    assert batch.frames.shape == (2, 2, 1, 16, 16)
    assert batch.frames.dtype == torch.uint8
    joined = next(iter(DataLoader(data.dataset("train"), batch_size=2, collate_fn=slotbench.data.collate)))
    assert joined.index.tolist() == [0, 1]
    grey = slotbench.build("CNNEncoder", data.spec.input, dim=8)
    assert grey(joined).abs().max() < 50


class SlotsOf(nn.Module):
    """A core whose call returns slots alone."""

    def __init__(self, core: Any) -> None:
        super().__init__()
        self.core = core

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.core(tokens).slots


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("name", "arguments"), [("SlotTransformer", {}), ("SlotSSM", {"kernel": "reference"})])
def test_a_core_that_returns_slots_alone_is_exported(name: str, arguments: dict[str, Any]) -> None:
    module = SlotsOf(slotbench.build(name, TOKENS, dim=8, **arguments)).eval()
    tokens = torch.rand(1, 2, 4, 8)
    with torch.no_grad():
        exported = torch.export.export(module, (tokens,)).module()
        torch.testing.assert_close(exported(tokens), module(tokens))


def test_metrics_of_masks_are_per_video_unless_another_scope_is_given() -> None:
    from slotbench.metrics import ARI, FGARI, MatchedIoU, MeanBestOverlap

    assert [metric().scope for metric in (ARI, FGARI, MatchedIoU, MeanBestOverlap)] == ["video"] * 4
    assert FGARI("frame").scope == "frame"


def test_a_submodule_is_there_without_an_import_of_its_own() -> None:
    assert slotbench.interfaces.VideoSpec is VideoSpec
    with pytest.raises(AttributeError, match="module slotbench has no attribute nothing_of_this_name"):
        _ = slotbench.nothing_of_this_name


def test_a_plain_loop_over_a_plain_loader_trains_a_task_of_built_parts_on_pixels_in_0_to_1() -> None:
    data = slotbench.build("BouncingBalls", num_frames=2, eval_frames=2, resolution=16)
    frame = data.spec.input
    encoder = slotbench.build("CNNEncoder", frame, dim=8)
    core = slotbench.build("SAVi", encoder.token_spec, num_slots=2, dim=8)
    decoder = slotbench.build("SpatialBroadcastDecoder", core.slot_spec, frame)
    task = slotbench.build("SlotAutoencoding", encoder=encoder, core=core, decoder=decoder, data_spec=data.spec)
    optimizer = torch.optim.SGD(task.parameters(), lr=1e-3)
    batch = next(iter(DataLoader(data.dataset("train"), batch_size=2)))
    loss = task.loss(task(batch), batch)
    loss.backward()
    optimizer.step()
    assert loss < 2
    assert encoder.convs[0].weight.grad.abs().sum() > 0
