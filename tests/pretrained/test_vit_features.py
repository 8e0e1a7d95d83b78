"""Features of the families of transformers are the library's own, of any block and of any frame."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from vit_folders import FAMILIES, vit_folder

from slotbench.interfaces import VideoSpec
from slotbench.pretrained import named_features
from slotbench.pretrained.vit_features import ViTFeatures
from slotbench.pretrained.weights import WeightError

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
FRAMES = torch.rand(2, 3, 3, 16, 28, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    return request.param, vit_folder(tmp_path_factory.mktemp("vit") / request.param, request.param)


def library(folder, family, images):
    """The library's module on normalised images: hidden states, the last after the norm, and keys and values."""
    network = FAMILIES[family][1].from_pretrained(folder).eval()
    seen = {}
    for name, module in network.named_modules():
        if name.endswith(("k_proj", "v_proj")):
            kind = {"k": "keys", "v": "values"}[name[-6]]
            module.register_forward_hook(lambda _m, _g, out, kind=kind: seen.setdefault(kind, []).append(out))
    more = {"interpolate_pos_encoding": True} if family == "vit" else {}
    with torch.no_grad():
        out = network(images, output_hidden_states=True, **more)
    seen["tokens"] = [*out.hidden_states[1:-1], out.last_hidden_state]
    return seen


@pytest.mark.parametrize("reads", ["tokens", "keys", "values"])
def test_features_are_those_of_the_librarys_module(family, reads):
    name, folder = family
    expected = library(folder, name, ((FRAMES - MEAN) / STD).flatten(0, 1))[reads]
    for layer in (0, 1, -1, -2):
        extractor = ViTFeatures(VideoSpec(3, 16, 28), folder, layer=layer, reads=reads)
        assert extractor.spec == VideoSpec(32, 4, 7)
        patches = expected[layer][:, -28:].reshape(2, 3, 4, 7, 32).movedim(-1, 2)
        torch.testing.assert_close(extractor(FRAMES), patches, atol=1e-5, rtol=1e-5)


def test_a_row_of_patches_is_a_row_of_the_frame_and_registers_are_none(family):
    _name, folder = family
    extractor = ViTFeatures(VideoSpec(3, 16, 28), folder, layer=0, reads="values")
    other = FRAMES.clone()
    other[..., 4:8, 20:24] = 0.5  # the patch in row 1, column 5
    assert ((extractor(other) - extractor(FRAMES)).abs().amax(dim=(0, 1, 2)) > 1e-3).nonzero().tolist() == [[1, 5]]


@pytest.mark.parametrize(("resolution", "size"), [(24, (24, 24)), ((8, 12), (8, 12))])
def test_frames_are_normalised_by_the_folder_and_resized_bicubically(tmp_path, resolution, size):
    folder = vit_folder(tmp_path, mean=0.3)
    extractor = ViTFeatures(VideoSpec(3, 16, 28), folder, resolution=resolution)
    images = torch.nn.functional.interpolate(FRAMES.flatten(0, 1), size=size, mode="bicubic")
    images = (images - 0.3) / torch.tensor([0.5, 0.25, 0.2]).view(3, 1, 1)
    expected = library(folder, "dinov2", images)["tokens"][-1][:, 1:]
    assert extractor.spec == VideoSpec(32, size[0] // 4, size[1] // 4)
    found = extractor(FRAMES).flatten(0, 1).flatten(2).transpose(1, 2)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_positions_of_another_grid_are_interpolated_as_the_library_does(tmp_path):
    extractor = ViTFeatures(VideoSpec(3, 16, 28), vit_folder(tmp_path, "vit"))
    table = transformers.ViTModel.from_pretrained(tmp_path).embeddings.position_embeddings[:, 1:]
    square = table.transpose(1, 2).unflatten(2, (6, 6))
    expected = torch.nn.functional.interpolate(square, size=(4, 7), mode="bicubic").flatten(2).transpose(1, 2)
    found = extractor.network.embeddings.interpolate_pos_encoding(torch.zeros(1, 29, 32), 16, 28)[:, 1:]
    torch.testing.assert_close(found, expected)


def test_a_head_is_left_out_and_blocks_after_the_chosen_one_too(tmp_path):
    folder = vit_folder(tmp_path, "vit")
    backbone = {f"vit.{name}": value for name, value in load_file(tmp_path / "model.safetensors").items()}
    save_file(backbone | {"classifier.weight": torch.zeros(2, 32)}, tmp_path / "model.safetensors", {"format": "pt"})
    extractor = ViTFeatures(VideoSpec(3, 24, 24), folder, layer=0)
    assert len(extractor.network.layers) == 1


def test_the_weights_are_known_by_name_and_hash_wherever_they_lie(tmp_path):
    folder = vit_folder(tmp_path / "small")
    first = ViTFeatures(VideoSpec(3, 24, 24), folder)
    moved = ViTFeatures(VideoSpec(3, 24, 24), shutil.move(folder, tmp_path / "elsewhere"))
    assert (first.weights, moved.weights) == ("small", "elsewhere")
    assert len(first.weights_sha256) == 64
    assert first.weights_sha256 == moved.weights_sha256
    with pytest.raises(WeightError, match=f"elsewhere have the hash {moved.weights_sha256}; expected .* hash 12ab"):
        ViTFeatures(VideoSpec(3, 24, 24), str(tmp_path / "elsewhere"), weights_sha256="12ab")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"video_spec": VideoSpec(1, 24, 24)}, "of 3 channels, and these have 1"),
        ({"video_spec": VideoSpec(3, 17, 26)}, r"17 x 26 pixels are no multiples of 4, .* to \[16, 24\] or \[20, 28\]"),
        ({"resolution": 2}, r"2 x 2 pixels are no multiples of 4, .* set resolution to \[4, 4\]$"),
        ({"layer": 2}, "layer is 2; the network has 2 blocks: expected 0 to 1, or -1 for the last"),
        ({"reads": "queries"}, "reads is 'queries'; expected tokens, keys or values"),
        ({"weights": "./nowhere"}, r"no vision transformer at \./nowhere: expected a folder with config\.json"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, given, message):
    arguments = {"video_spec": VideoSpec(3, 24, 24), "weights": vit_folder(tmp_path)} | given
    with pytest.raises(ValueError, match=message):
        ViTFeatures(**arguments)


def test_other_models_and_damaged_folders_are_refused_in_a_sentence(tmp_path):
    folder = vit_folder(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [0.5]}')
    with pytest.raises(WeightError, match=r"preprocessor_config.json: expected image_mean, .* three numbers"):
        ViTFeatures(VideoSpec(3, 24, 24), folder)
    (tmp_path / "preprocessor_config.json").unlink()
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"hidden_size": 32', '"hidden_size": 48'))
    with pytest.raises(WeightError, match=r"lacks .* more weights of the dinov2 in its config.json"):
        ViTFeatures(VideoSpec(3, 24, 24), folder)
    (tmp_path / "config.json").write_text(config)
    held = load_file(tmp_path / "model.safetensors")
    del held[max(held)]
    save_file(held, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(WeightError, match=r"lacks .* more weights of the dinov2"):
        ViTFeatures(VideoSpec(3, 24, 24), folder)
    (tmp_path / "model.safetensors").write_bytes(b"1234567890")
    with pytest.raises(WeightError, match=r"the weights of .* cannot be read"):
        ViTFeatures(VideoSpec(3, 24, 24), folder)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(WeightError, match=r"has no model\.safetensors"):
        ViTFeatures(VideoSpec(3, 24, 24), folder)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "swin"}))
    with pytest.raises(WeightError, match="a model of the type swin; expected one of vit, dinov2, dinov2_with_reg"):
        ViTFeatures(VideoSpec(3, 24, 24), folder)


@pytest.mark.parametrize(
    ("given", "is_class"),
    [("RandomViT", True), ("my.Network", True), ("WEIGHTS", False), ("dino_vitb8", False), ("./Net", False)],
)
def test_a_folder_is_told_from_a_class(given, is_class):
    full = ["--f", given] if is_class else ["--f", "ViTFeatures", "--f.weights", given]
    assert named_features(["fit", f"--features={given}"], "--f") == ["fit", *full]
