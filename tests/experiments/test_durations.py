"""The headers of the papers' experiments say how long they take: estimates by operations, counted without memory."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace

import pytest
import torch
from test_paper_sizes import PAPER, blank_maps, config_of, frame_of, model_of

from slotbench.bench.flops import count_flops
from slotbench.interfaces import VideoBatch

RATE = 30e12
"""Operations per second of an A100 with TF32. In ConvS5's V100 days on Moving-MNIST there were 6 to 14 of 15.7."""
COUNTED = ("movi_a_psb", "clevr_slate", "moving_mnist_300_convs5", "dmlab_transformer", "simple3d_psb_nerf")
__all__ = ["blank_maps"]


class _NoAutocast(contextlib.nullcontext):  # type: ignore[type-arg]
    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__()


@pytest.fixture(autouse=True)
def no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast does not know the device `meta`."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    for place in (torch, torch.amp, torch.amp.autocast_mode):
        monkeypatch.setattr(place, "autocast", _NoAutocast)


def operations(name: str, device: str = "meta") -> float:
    """Of a whole training: three forward passes of every clip of every step."""
    config, task = config_of(name), config_of(name)["model"]["class_path"]
    given, data, trainer = config["model"]["init_args"], config["data"]["init_args"], config["trainer"]
    steps, frame, model = data.get("num_frames", 1), frame_of(config), model_of(config).to_empty(device=device)
    of_codes = task in ("CodePrediction", "TECO")
    alone = task == "FrameTokenization"
    tokenizer = (
        model if alone else model.tokenizer if of_codes else model["tokenizer"] if "tokenizer" in given else None
    )
    code = tokenizer.code_spec if tokenizer else None
    with torch.no_grad(), torch.device(device):
        views = (frame.num_views,) if frame.num_views > 1 else ()
        size = (frame.height, frame.width)
        codes = None if code is None else torch.zeros(1, steps, code.height, code.width, dtype=torch.long)
        batch = VideoBatch(
            frames=torch.zeros(1, steps, *views, frame.channels, *size),
            time=torch.zeros(1, steps, dtype=torch.long),
            actions=torch.zeros(1, steps, frame.num_actions) if frame.num_actions else None,
            rays=torch.zeros(1, steps, *views, 6, *size) if views else None,
            codes=codes,
            target=codes,
        )

        def forward() -> None:
            if of_codes:
                model(batch)
                return
            if tokenizer is not None:
                tokenizer(batch.frames.flatten(0, 1))
            if alone:
                return
            painted = batch
            if views:
                rays = torch.zeros(1, steps, 6, 1, given["rays_per_step"])
                painted = replace(batch, rays=rays, frames=rays[:, :, :3])
            model["decoder"](model["core"](model["encoder"](batch)).slots, painted)

        counted = count_flops(forward, model)
    assert counted
    clips = data["loader"]["batch_size"] * int(trainer.get("devices", 1)) * trainer.get("accumulate_grad_batches", 1)
    return 3.0 * counted * clips * trainer["max_steps"]


def said_of(name: str) -> tuple[float, float] | None:
    """Operations and seconds that a header estimates; None where it has a number that was measured."""
    (said,) = re.findall(r"^# Duration: (.*)$", (PAPER / f"{name}.yaml").read_text(), re.MULTILINE)
    if not said.startswith("estimated"):
        assert re.search(r"\d (?:minutes|hours|days)", said), said
        return None
    estimate = r"estimated, ([.\d]+) x 10\^(\d+) operations, (?:at least )?([.\d]+) (\w+) of an A100 at 30 TFLOP/s\."
    number, exponent, time, unit = re.match(estimate, said).groups()  # type: ignore[union-attr]
    return float(number) * 10 ** int(exponent), float(time) * {"minutes": 60, "hours": 3600, "days": 86400}[unit]


@pytest.mark.parametrize("name", sorted(path.stem for path in PAPER.glob("*.yaml")))
def test_the_duration_of_an_experiment_is_a_number_or_an_estimate_by_operations_and_card(name):
    if (said := said_of(name)) is not None:
        assert said[1] == pytest.approx(said[0] / RATE, rel=0.1)


@pytest.mark.parametrize("name", COUNTED)
def test_operations_are_those_of_the_model(name):
    assert said_of(name)[0] == pytest.approx(operations(name), rel=0.06)
