"""The options of W&B: read from the command line, and handed to every point of a grid."""

from __future__ import annotations

import pytest

from slotbench.config.options import split_options
from slotbench.errors import UserError

TYPED = [
    *("--wandb", "offline", "--wandb_project", "balls", "--wandb_entity", "lab"),
    *("--wandb_tags", "baseline,april", "--wandb_notes", "half the rate", "--wandb_artifacts"),
]


def test_options_are_read() -> None:
    options, rest = split_options([*TYPED, "--model.core", "RIM"])
    assert rest == ["--model.core", "RIM"]
    assert options.wandb_tags == ("baseline", "april")


def test_a_tag_that_wandb_refuses_is_refused_before_the_training() -> None:
    with pytest.raises(UserError, match="--wandb_tags has a tag of 65 characters"):
        split_options(["--wandb_tags", "short," + "x" * 65])
