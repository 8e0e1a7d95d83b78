"""Features of an ONNX file are the values of a tensor inside its graph."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

onnx = pytest.importorskip("onnx")

from slotbench.interfaces import VideoSpec  # noqa: E402
from slotbench.pretrained.onnx_features import ONNXFeatures  # noqa: E402
from slotbench.pretrained.weights import WeightError  # noqa: E402

KERNEL = np.random.default_rng(0).normal(size=(5, 3, 4, 4)).astype(np.float32)
FRAME = VideoSpec(3, 10, 20)


def write_onnx(path, batch="batch", height=8):
    """A graph of patches of 4 x 4 pixels as tokens, a zero before them, and more behind; a frame has 8 x 12 pixels."""
    node, info, floats = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    nodes = [
        node("Conv", ["image", "kernel"], ["map"], strides=[4, 4]),
        node("Reshape", ["map", "shape"], ["rows"]),
        node("Transpose", ["rows"], ["patches"], perm=[0, 2, 1]),
        node("Pad", ["patches", "one"], ["tokens"]),
        node("ReduceMean", ["tokens"], ["score"], keepdims=0),
    ]
    held = {"kernel": KERNEL, "shape": np.array([0, 0, -1]), "one": np.array([0, 1, 0, 0, 0, 0])}
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in held.items()]
    image, score = info("image", floats, [batch, 3, height, 12]), info("score", floats, [])
    graph = onnx.helper.make_graph(nodes, "made", [image], [score], constants)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return str(path)


@pytest.mark.parametrize(("batch", "output", "prefix"), [("batch", "tokens", 1), (1, "patches", 0)])
def test_the_graph_is_cut_at_a_tensor(tmp_path, batch, output, prefix):
    path = write_onnx(tmp_path / "net.onnx", batch)
    extractor = ONNXFeatures(FRAME, path, output, prefix, mean=(0.1, 0.2, 0.3), std=(0.5, 0.5, 0.25), frames_at_once=4)
    assert extractor.spec == VideoSpec(5, 2, 3)
    assert extractor.resolution == (8, 12)
    assert extractor.weights == "net.onnx"
    assert extractor.weights_sha256 == hashlib.sha256((tmp_path / "net.onnx").read_bytes()).hexdigest()
    frames = torch.rand(2, 3, 3, 10, 20)
    images = torch.nn.functional.interpolate(frames.flatten(0, 1), size=(8, 12), mode="bicubic")
    images = (images - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor([0.5, 0.5, 0.25]).view(3, 1, 1)
    expected = torch.nn.functional.conv2d(images, torch.from_numpy(KERNEL), stride=4).unflatten(0, (2, 3))
    torch.testing.assert_close(extractor(frames), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(extractor.double()(frames.double()), expected.double(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"output": "token"}, "has no tensor token; did you mean tokens?"),
        ({"output": "map"}, r"map has the shape \(1, 5, 2, 3\) for an image of 8 x 12 pixels; expected \(frames"),
        ({"prefix_tokens": 2}, r"tokens has the shape \(1, 7, 5\) .*: set prefix_tokens"),
        ({"path": "nowhere.onnx"}, r"there is no ONNX file at nowhere\.onnx"),
        ({"weights_sha256": "12ab"}, r"net\.onnx have the hash .*; expected are those of the hash 12ab"),
        ({"video_spec": VideoSpec(1, 8, 12)}, "of 3 channels, and these have 1"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, given, message):
    path = write_onnx(tmp_path / "net.onnx")
    with pytest.raises(ValueError, match=message):
        ONNXFeatures(**{"video_spec": FRAME, "path": path, "output": "tokens"} | given)


def test_damaged_files_and_graphs_of_any_size_are_refused(tmp_path):
    with pytest.raises(WeightError, match=r"no fixed height and width; expected a graph of one size"):
        ONNXFeatures(FRAME, write_onnx(tmp_path / "any.onnx", height="height"), "tokens")
    whole = (tmp_path / "any.onnx").read_bytes()
    for left, told in ((whole[:-1], r"cannot be read as ONNX .*: copy it anew"), (b"", "has no tensor tokens")):
        (tmp_path / "damaged.onnx").write_bytes(left)
        with pytest.raises(WeightError, match=rf"damaged\.onnx {told}"):
            ONNXFeatures(FRAME, str(tmp_path / "damaged.onnx"), "tokens")
