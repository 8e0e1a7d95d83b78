"""Features of a vision transformer of self-supervised learning: DINO, DINOv2 or DINOv3, run by transformers."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.errors import UserError, first_line
from slotbench.interfaces import VideoSpec
from slotbench.io import read_json_object
from slotbench.pretrained.feature_extractor import IMAGENET_MEAN, IMAGENET_STD, FeatureExtractor, check_coloured
from slotbench.pretrained.weights import WeightError

__all__ = ["ViTFeatures", "check_multiple", "library"]

_CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"
_FAMILIES = {
    "vit": ("layers", "layernorm"),
    "dinov2": ("encoder.layer", "layernorm"),
    "dinov2_with_registers": ("encoder.layer", "layernorm"),
    "dinov3_vit": ("model.layer", "norm"),
}
"""The library's `model_type` -> where its blocks and its last norm are."""
_UNUSED = ("mask_token", "pooler.")
"""Of weights that a folder may lack: no frame is read by them."""

Reads = Literal["tokens", "keys", "values"]


class ViTFeatures(FeatureExtractor):
    """Patches of a vision transformer of the library transformers: ViT (DINO), DINOv2, with registers, or DINOv3.

    Class token and registers are dropped. Positions are those of the library for the size of the frames; colours are
    normalised by the mean and deviation in the folder's preprocessor_config.json, or ImageNet's if it has none.
    Weights are read as safetensors, and no code of a folder is run. Blocks after `layer` are not computed.

    Source: Krimmel et al., TMLR 2024, Appendix F (DINO ViT-B/8 at 224 pixels: 28 x 28 features of width 768);
    Zadaianchuk et al., VideoSAUR, NeurIPS 2023 (the keys of the last block for its loss).

    Args:
        video_spec: the frames, of three channels.
        weights: a folder that transformers' `save_pretrained` wrote, or a name on the Hugging Face Hub, which is
            downloaded to the library's cache.
        layer: the block whose features are taken, from 0, or from -1 backwards. Tokens after the last block are taken
            after the final norm.
        reads: "tokens" after the block, or the "keys" or "values" of its attention, all heads side by side, before
            positions turn them (DINOv3).
        resolution: side, or height and width, that frames are resized to, in multiples of the patch; null for frames as
            they are.
        frames_at_once: frames that the network is given at a time.
        half_precision: computes in 16 bits on a GPU.
        weights_sha256: hash that the weights must have; null for any.
    """

    def __init__(
        self,
        video_spec: VideoSpec,
        weights: str,
        layer: int = -1,
        reads: Reads = "tokens",
        resolution: int | tuple[int, int] | None = None,
        frames_at_once: int = 64,
        half_precision: bool = False,
        weights_sha256: str | None = None,
    ) -> None:
        check_coloured(video_spec)
        if reads not in ("tokens", "keys", "values"):
            raise ValueError(f"reads is {reads!r}; expected tokens, keys or values")
        folder, name = _folder(weights)
        kind = str(read_json_object(folder / _CONFIG).get("model_type"))
        if kind not in _FAMILIES:
            raise WeightError(f"{weights} is a model of the type {kind}; expected one of {', '.join(_FAMILIES)}")
        network = _network(folder, weights, kind)
        super().__init__(network, frames_at_once)
        self.keep_weights(name, _weight_files(folder), weights_sha256)
        self._read, self._half = _chosen(network, kind, layer, reads), half_precision
        given = (video_spec.height, video_spec.width) if resolution is None else resolution
        self.resolution = (given, given) if isinstance(given, int) else (given[0], given[1])
        patch = int(network.config.patch_size)
        check_multiple(self.resolution, patch)
        self._prefix = 1 + getattr(network.config, "num_register_tokens", 0)
        self._positions = {"interpolate_pos_encoding": True} if kind == "vit" else {}
        rows, cols = (side // patch for side in self.resolution)
        self.spec = VideoSpec(network.config.hidden_size, rows, cols)
        colours = read_json_object(folder / _PREPROCESSOR) if (folder / _PREPROCESSOR).is_file() else {}
        try:
            self.keep_normalisation(colours.get("image_mean", IMAGENET_MEAN), colours.get("image_std", IMAGENET_STD))
        except (RuntimeError, TypeError, ValueError) as error:
            raise WeightError(f"{folder / _PREPROCESSOR}: expected image_mean, image_std of three numbers") from error

    def extract(self, images: Float[Tensor, "frames 3 height width"]) -> Float[Tensor, "frames dim rows cols"]:
        """Features of some frames, in [0, 1]."""
        seen: list[Tensor] = []
        half = self._half and images.is_cuda
        with (
            self.network.get_submodule(self._read).register_forward_hook(lambda _module, _given, out: seen.append(out)),
            torch.autocast("cuda", torch.float16) if half else contextlib.nullcontext(),
        ):
            self.network(self.normalised(images), **self._positions)
        patches = seen[0][:, self._prefix :].to(self.mean.dtype)
        return patches.transpose(1, 2).unflatten(2, (self.spec.height, self.spec.width))


def _folder(weights: str) -> tuple[Path, str]:
    """The folder of a model, downloaded by its name if there is no such folder here, and its name."""
    here = Path(weights).expanduser()
    if (here / _CONFIG).is_file():
        return here, here.resolve().name
    expected = f"expected a folder with {_CONFIG} and model.safetensors, or a name on the Hub such as USER/MODEL"
    if here.exists() or weights.count("/") != 1 or weights[0] in "./~":
        raise WeightError(f"no vision transformer at {weights}: {expected}")
    download = library("huggingface_hub").snapshot_download
    try:
        return Path(download(weights, allow_patterns=[_CONFIG, _PREPROCESSOR, "model*.safetensors*"])), weights
    except Exception as error:  # of the network, or of an address that is none
        raise WeightError(
            f"{weights} is no folder here and not had from the Hub ({first_line(error)}); {expected}"
        ) from error


def library(name: str) -> Any:
    """A package of the extra `features`; a `UserError` where it is not installed."""
    try:
        return __import__(name)
    except ImportError as error:
        raise UserError(f"{name} is not installed: pip install 'slotbench[features]'") from error


def _weight_files(folder: Path) -> list[Path]:
    """The file of the weights, or all of them where there are several."""
    return (
        [folder / "model.safetensors"]
        if (folder / "model.safetensors").is_file()
        else sorted(folder.glob("model-*.safetensors"))
    )


def _network(folder: Path, weights: str, kind: str) -> Any:
    if not _weight_files(folder):
        raise WeightError(f"{weights} has no model.safetensors: the weights are read in that form alone")
    options: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
    options |= {"add_pooling_layer": False} if kind == "vit" else {}
    transformers = library("transformers")
    # its report names heads that are left out, which nobody asked for
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        network, told = transformers.AutoModel.from_pretrained(
            folder, local_files_only=True, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    except Exception as error:  # whatever torch, safetensors and the library raise for a file that is damaged
        raise WeightError(f"the weights of {weights} cannot be read ({first_line(error)}): copy them anew") from error
    unread = {*told["missing_keys"], *(name for name, *_ in told["mismatched_keys"])}
    if lacking := sorted(name for name in unread if not any(part in name for part in _UNUSED)):
        raise WeightError(
            f"{weights} lacks {lacking[0]} and {len(lacking) - 1} more weights of the {kind} in its {_CONFIG}"
        )
    return network


def _chosen(network: Any, kind: str, layer: int, reads: Reads) -> str:
    """The module whose output is read; what follows its block is cut off."""
    blocks_name, norm = _FAMILIES[kind]
    blocks = network.get_submodule(blocks_name)
    count = len(blocks)
    if not -count <= layer < count:
        raise ValueError(
            f"layer is {layer}; the network has {count} blocks: expected 0 to {count - 1}, or -1 for the last"
        )
    index = layer % count
    del blocks[index + 1 :]
    if reads != "tokens":
        return f"{blocks_name}.{index}.attention.{reads[0]}_proj"
    return norm if index == count - 1 else f"{blocks_name}.{index}"


def check_multiple(size: tuple[int, int], patch: int) -> None:
    """A `ValueError` unless both sides of the frames are multiples of that of a patch."""
    if any(side < patch or side % patch for side in size):
        near = sorted({(f(size[0] / patch), f(size[1] / patch)) for f in (_up, _down)})
        sizes = " or ".join(str([rows * patch, cols * patch]) for rows, cols in near)
        raise ValueError(
            f"frames of {size[0]} x {size[1]} pixels are no multiples of {patch}, the side of a patch: set resolution "
            f"to {sizes}"
        )


def _down(patches: float) -> int:
    return max(1, int(patches))


def _up(patches: float) -> int:
    return max(1, -int(-patches // 1))
