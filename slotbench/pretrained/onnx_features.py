"""Features of a network in an ONNX file, run by onnxruntime up to where its tokens are."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.errors import UserError, did_you_mean, first_line
from slotbench.interfaces import VideoSpec
from slotbench.pretrained.feature_extractor import IMAGENET_MEAN, IMAGENET_STD, FeatureExtractor, check_coloured
from slotbench.pretrained.weights import WeightError

__all__ = ["ONNXFeatures"]


class ONNXFeatures(FeatureExtractor):
    """Tokens of a network in an ONNX file, which is cut behind them: what would follow is not computed.

    Frames are resized to the size that the file's graph has for its input. The tokens are those of square patches, row
    by row. `onnxruntime-gpu` in the place of `onnxruntime` computes on a GPU.

    Args:
        video_spec: the frames, of three channels.
        path: the file.
        output: name of the tensor inside the graph, "frames tokens dim", whose values are the features.
        prefix_tokens: tokens before those of the patches, which are dropped: class token and registers.
        mean: of each colour in [0, 1], which is taken off; ImageNet's by default.
        std: of each colour, by which it is divided.
        frames_at_once: frames that the network is given at a time.
        weights_sha256: hash that the file must have; null for any.
    """

    def __init__(
        self,
        video_spec: VideoSpec,
        path: str,
        output: str,
        prefix_tokens: int = 1,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        frames_at_once: int = 64,
        weights_sha256: str | None = None,
    ) -> None:
        check_coloured(video_spec)
        file = Path(path).expanduser()
        if not file.is_file():
            raise WeightError(f"there is no ONNX file at {path}")
        network = _CutNetwork(file, output)
        super().__init__(network, frames_at_once)
        self.keep_weights(file.name, [file], weights_sha256)
        self.keep_normalisation(mean, std)
        self.resolution = network.size
        self.prefix_tokens = prefix_tokens
        with torch.no_grad():
            tokens = network(torch.zeros(1, 3, *network.size))
        self.spec = _spec(tokens, network.size, prefix_tokens, output)

    def extract(self, images: Float[Tensor, "frames 3 height width"]) -> Float[Tensor, "frames dim rows cols"]:
        """Features of some frames, in [0, 1]."""
        patches = self.network(self.normalised(images))[:, self.prefix_tokens :]
        return patches.transpose(1, 2).unflatten(2, (self.spec.height, self.spec.width))


class _CutNetwork(nn.Module):
    """The part of a graph that leads from its image to one of its tensors.

    Attributes:
        size: height and width of the image.
    """

    def __init__(self, file: Path, output: str) -> None:
        super().__init__()
        try:
            import onnx
            import onnxruntime
            from onnx.utils import Extractor
        except ImportError as error:
            raise UserError(f"{error.name} is not installed: pip install 'slotbench[onnx]'") from error
        try:
            model = onnx.load(file)
        except Exception as error:  # whatever onnx and protobuf raise for a file that is damaged
            raise WeightError(f"{file} cannot be read as ONNX ({first_line(error)}): copy it anew") from error
        names = [name for node in model.graph.node for name in node.output]
        if output not in names:
            raise WeightError(f"the graph of {file} has no tensor {output}{did_you_mean(output, names)}")
        constants = {one.name for one in model.graph.initializer}
        image = next(one for one in model.graph.input if one.name not in constants)
        batch, _, height, width = (side.dim_value for side in image.type.tensor_type.shape.dim)
        if not (height and width):
            raise WeightError(f"the image of {file} has no fixed height and width; expected a graph of one size")
        self.size, self._batch, self._image = (height, width), batch, image.name
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        here = onnxruntime.get_available_providers()
        providers = [one for one in ("CUDAExecutionProvider", "CPUExecutionProvider") if one in here]
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None))
        cut = Extractor(model).extract_model([image.name], [output]).SerializeToString()
        self._session: Any = onnxruntime.InferenceSession(cut, options, providers)

    def forward(self, images: Float[Tensor, "frames 3 height width"]) -> Float[Tensor, "frames tokens dim"]:
        """The values of the tensor."""
        parts = images.split(self._batch or len(images))
        found = [self._session.run(None, {self._image: part.float().cpu().numpy()})[0] for part in parts]
        return torch.cat([torch.from_numpy(values) for values in found]).to(images)


def _spec(tokens: Tensor, size: tuple[int, int], prefix: int, output: str) -> VideoSpec:
    """Width, rows and columns of the features: the grid of square patches that has so many tokens."""
    if tokens.ndim == 3 and tokens.shape[1] > prefix:
        count = tokens.shape[1] - prefix
        patch = isqrt(size[0] * size[1] // count)
        if (size[0] // patch) * (size[1] // patch) == count:
            return VideoSpec(tokens.shape[2], size[0] // patch, size[1] // patch)
    raise WeightError(
        f"{output} has the shape {tuple(tokens.shape)} for an image of {size[0]} x {size[1]} pixels; expected (frames, "
        f"tokens, width), {prefix} tokens and then one for each square patch: set prefix_tokens"
    )
