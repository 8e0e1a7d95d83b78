"""The configuration of a run that trains in a moment, and the file of its components."""

from __future__ import annotations

from pathlib import Path

__all__ = ["COMPONENTS", "tiny_config"]

COMPONENTS = Path(__file__).parent / "cli_components.py"


def tiny_config() -> dict:
    return {
        "model": {
            "class_path": "TinyTask",
            "init_args": {
                "encoder": {"class_path": "TinyEncoder"},
                "core": {"class_path": "TinyCore", "init_args": {"num_slots": 3, "depth": 2}},
                "decoder": {"class_path": "TinyDecoder"},
            },
        },
        "data": {"class_path": "TinyData"},
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False},
    }
