"""Frozen networks (AlexNet, I3D, extractors of features), and what reads weights from files."""

from collections.abc import Sequence
from pathlib import Path

EXTRACTORS = {
    "slotbench.pretrained.vit_features": "ViTFeatures",
    "slotbench.pretrained.onnx_features": "ONNXFeatures",
    "slotbench.pretrained.random_vit": "RandomViT",
}
"""The feature extractors that a configuration may name, by the module of each."""


def named_features(arguments: Sequence[str], setting: str) -> list[str]:
    """A command line with `--features WEIGHTS` in full: the setting is `ViTFeatures` of them; names of classes stay."""
    words: list[str] = []
    for argument in arguments:
        option, equals, value = argument.partition("=")
        words += [option, value] if option == "--features" and equals else [argument]
    for place in [place for place, word in enumerate(words[:-1]) if word == "--features"][::-1]:
        weights = words[place + 1]
        *_, name = parts = weights.split(".")
        in_both_cases = name[:1].isupper() and not name.isupper()  # such as MyNet
        is_class = in_both_cases and all(part.isidentifier() for part in parts) and not Path(weights).exists()
        words[place : place + 2] = (
            [setting, weights] if is_class else [setting, "ViTFeatures", f"{setting}.weights", weights]
        )
    return words
