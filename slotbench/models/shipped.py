"""The models that come with slotbench, by name: a folder here with a `config.json`. Torch is not imported."""

from __future__ import annotations

from pathlib import Path

from slotbench.components import Component, Components

__all__ = ["SUMMARIES", "listed", "shipped"]

SUMMARIES = {
    "blinking_balls_slotssm": "SlotSSM recalls the first colour of each blinking ball",
    "bouncing_balls_slotssm": "SlotSSM reads ten frames of balls that collide and predicts those that follow",
    "movi_like_savi": "SAVi finds the objects of simulated 3-D videos without labels",
    "moving_mnist_convs5": "ConvS5 reads forty frames of a moving digit and predicts those that follow",
}

_HERE = Path(__file__).parent


def shipped() -> dict[str, Path]:
    """Their folders by name."""
    return {path.name: path for path in sorted(_HERE.iterdir()) if (path / "config.json").is_file()}


def listed() -> Components:
    """A line for each: its name and what it does."""
    return Components(Component(name, "models", SUMMARIES.get(name, ""), "", "", "slotbench") for name in shipped())
