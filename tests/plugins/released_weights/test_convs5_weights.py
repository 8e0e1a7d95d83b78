"""The authors' weights give the authors' model, and come back to the bit (convs5.md 9.2, 10.26)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from convs5_authors_model import Loops, Sizes, formula_tree, tree_shapes
from slotbench_plugins.cores.conv_lstm import ConvLSTM
from slotbench_plugins.cores.conv_s5 import ConvS5
from slotbench_plugins.decoders.resnet_decoder import ResNetDecoder
from slotbench_plugins.encoders.resnet_encoder import ResNetEncoder
from slotbench_plugins.released_weights.convs5 import from_tree, load_tree, read_tree
from torch import nn

from slotbench.interfaces import VideoBatch, VideoSpec

pytestmark = pytest.mark.slow

VARIANTS = {
    "released": Sizes(),
    "one block, other kernels": Sizes(blocks=1, b_kernel=5, c_kernel=1, activation_kernel=5, num_layers=1),
    "three levels, an action of 16 channels": Sizes(depths=(32, 32, 64), blocks=1, action_dim=16, num_layers=1),
    "squeeze and excite": Sizes(squeeze_excite=True, num_layers=1, blocks=1),
    "half GLU": Sizes(activation="half_glu", num_layers=1, blocks=1),
    "standard": Sizes(activation="standard", num_layers=1, blocks=1),
    "diag_resnet": Sizes(activation="diag_resnet", num_layers=1, blocks=1),
    "colour": Sizes(channels=3, num_layers=1, blocks=1),
}


class Model(nn.Module):
    """What a task is to its weights: three parts by these names."""

    def __init__(self, s: Sizes, lstm: bool = False, pixels: int = 8):
        super().__init__()
        video = VideoSpec(s.channels, pixels, pixels)
        self.encoder = ResNetEncoder(video, s.depths, s.blocks, s.action_dim)
        if lstm:
            self.core = ConvLSTM(self.encoder.token_spec, s.dim, s.num_layers)
        else:
            self.core = ConvS5(
                self.encoder.token_spec,
                s.dim,
                2 * s.half_state,
                s.num_layers,
                s.b_kernel,
                s.c_kernel,
                s.activation,
                s.activation_kernel,
                squeeze_excite=s.squeeze_excite,
            )
        self.decoder = ResNetDecoder(self.core.slot_spec, video, s.depths, s.blocks)

    def forward(self, frames):
        batch = VideoBatch(frames, torch.arange(frames.shape[1]).expand(frames.shape[:2]))
        return self.decoder(self.core(self.encoder(batch)).slots).reconstruction


def outputs_of_both(s, lstm=False):
    tree = formula_tree(s, lstm)
    model = Model(s, lstm).double()
    load_tree(model, tree)
    video = np.sin(1.3 * np.arange(4 * 8 * 8 * s.channels)).reshape(4, 8, 8, s.channels)
    with torch.no_grad():
        ours = model(torch.from_numpy((video + 1) / 2).permute(0, 3, 1, 2)[None])[0].permute(0, 2, 3, 1)
    return ours, torch.from_numpy(Loops(tree, s, lstm)(video))


@pytest.mark.parametrize("variant", VARIANTS)
def test_conv_s5_with_the_authors_weights_computes_their_model(variant):
    ours, theirs = outputs_of_both(VARIANTS[variant])
    assert theirs.std() > 0.05
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def test_conv_lstm_with_the_authors_weights_computes_their_model():
    ours, theirs = outputs_of_both(Sizes(), lstm=True)
    assert theirs.std() > 0.05
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def test_the_papers_model_has_the_authors_shapes():
    s = Sizes((64, 128, 256), 1, dim=256, half_state=128, c_kernel=3, num_layers=8)
    with torch.device("meta"):
        model = Model(s, pixels=64)
    assert sum(parameter.numel() for parameter in model.parameters()) == 21_681_411
    assert sum(int(np.prod(shape)) for shape in tree_shapes(s).values()) == 21_681_411
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in Model(s, lstm=True, pixels=64).parameters()) == 40_540_419


def test_a_file_of_flax_variables_is_read_without_what_is_no_parameter(tmp_path):
    tree = formula_tree(Sizes())
    path = tmp_path / "variables.npz"
    named = {f"params/{name}": value for name, value in tree.items()}
    np.savez(path, **named, **{"prime/sequence_model/layers_0/seq/ssm": np.zeros(2)})
    read = read_tree(path)
    assert read.keys() == tree.keys()
    assert all(np.array_equal(read[name], tree[name]) for name in tree)
    model = Model(Sizes()).double()
    load_tree(model, path)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in from_tree(tree).items())
