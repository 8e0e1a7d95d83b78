"""The options of W&B: read from the command line, and handed to every point of a grid."""

from __future__ import annotations

from slotbench.config.options import split_options

TYPED = [
    *("--wandb", "offline", "--wandb_project", "balls", "--wandb_entity", "lab"),
    *("--wandb_tags", "baseline,april", "--wandb_notes", "half the rate", "--wandb_artifacts"),
]


def test_options_are_read() -> None:
    options, rest = split_options([*TYPED, "--model.core", "RIM"])
    assert rest == ["--model.core", "RIM"]
    assert options.wandb_tags == ("baseline", "april")
