"""The SlotSSM authors' weights give the authors' model: held to one with their names, written from its description."""

from __future__ import annotations

import math

import pytest
import torch
from slotbench_plugins.cores.oc_slot_ssm import OCSlotSSM
from slotbench_plugins.released_weights.slotssm import load_slotssm
from torch import Tensor, nn

from slotbench.interfaces import TokenSpec
from slotbench.nn.mamba import MambaBlock
from slotbench.nn.mamba2 import Mamba2Block

pytestmark = pytest.mark.slow

BATCH, STEPS, SLOTS, TOKENS, TOKEN, DIM = 2, 4, 3, 5, 12, 64


def attend(q: Tensor, k: Tensor, v: Tensor, num_heads: int, inverted: bool) -> Tensor:
    """Their attention for one item, head by head; inverted: the slots of all heads compete for a token."""
    q, k, v = (part.split(DIM // num_heads, dim=-1) for part in (q, k, v))
    scores = [a @ b.T / math.sqrt(a.shape[-1]) for a, b in zip(q, k, strict=True)]
    if inverted:
        shares = torch.cat(scores).softmax(dim=0).split(len(scores[0]))
        shares = [share / (share.sum(dim=1, keepdim=True) + 1e-5) for share in shares]
    else:
        shares = [score.softmax(dim=1) for score in scores]
    return torch.cat([share @ value for share, value in zip(shares, v, strict=True)], dim=-1)


class Heads(nn.Module):
    """Under the names of their `MultiHeadAttention`."""

    def __init__(self, num_heads: int, inverted: bool):
        super().__init__()
        self.num_heads, self.inverted = num_heads, inverted
        self.proj_q, self.proj_k, self.proj_v, self.proj_o = (nn.Linear(DIM, DIM) for _ in range(4))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        items = zip(self.proj_q(x), self.proj_k(y), self.proj_v(y), strict=True)
        return self.proj_o(torch.stack([attend(*item, self.num_heads, self.inverted) for item in items]))


class FusedHeads(nn.Module):
    """Under the names of flash-attn's module: queries, keys and values are one map."""

    def __init__(self, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.Wqkv = nn.Linear(DIM, 3 * DIM)
        self.out_proj = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        items = (item.split(DIM, dim=-1) for item in self.Wqkv(x))
        return self.out_proj(torch.stack([attend(*item, self.num_heads, inverted=False) for item in items]))


class Block(nn.Module):
    def __init__(self, ssm: str, fused: bool, ffn: bool, reader_heads: int):
        super().__init__()
        self.input_proj = nn.Linear(TOKEN, DIM)
        self.cross_attn_input_norm = nn.LayerNorm(DIM)
        self.cross_attn_ref_norm = nn.LayerNorm(DIM)
        self.cross_attn = Heads(reader_heads, inverted=True)
        self.time_mixer_norm = nn.LayerNorm(DIM)
        # both have the names of mamba-ssm
        self.time_mixer = Mamba2Block(DIM, 8, 2.0, 4, 64) if ssm == "mamba2" else MambaBlock(DIM, 8, 2.0, 4)
        self.space_attn_norm = nn.LayerNorm(DIM)
        self.space_attn = FusedHeads(2) if fused else Heads(2, inverted=False)
        if ffn:
            self.ffn_norm = nn.LayerNorm(DIM)
            self.ffn = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, slots: Tensor, tokens: Tensor) -> Tensor:
        slots = slots.clone()
        for t in range(STEPS):
            read = self.cross_attn_ref_norm(self.input_proj(tokens[:, t]))
            slots[:, t] = slots[:, t] + self.cross_attn(self.cross_attn_input_norm(slots[:, t]), read)
        for k in range(SLOTS):
            slots[:, :, k] = slots[:, :, k] + self.time_mixer(self.time_mixer_norm(slots[:, :, k]))[0]
        for t in range(STEPS):
            x = self.space_attn_norm(slots[:, t])
            slots[:, t] = slots[:, t] + self.space_attn(x, x)
        return slots + self.ffn(self.ffn_norm(slots)) if hasattr(self, "ffn") else slots


class Published(nn.Module):
    """The authors' `SlotSSM`, in loops, with the names of its parameters."""

    def __init__(self, ssm: str = "mamba2", fused: bool = True, ffn: bool = False, reader_heads: int = 1):
        super().__init__()
        torch.manual_seed(0)
        self.init_slots = nn.Parameter(torch.randn(1, 1, SLOTS, DIM))
        self.blocks = nn.ModuleList(Block(ssm, fused, ffn, reader_heads) for _ in range(2))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        self.double()

    def forward(self, tokens: Tensor) -> Tensor:
        slots = self.init_slots.expand(BATCH, STEPS, -1, -1)
        for block in self.blocks:
            slots = block(slots, tokens)
        return slots


def core_for(ssm: str = "mamba2", ffn: bool = False, reader_heads: int = 1, **arguments) -> OCSlotSSM:
    sizes = {"state_dim": 8, "expand": 2.0, "head_dim": 64, "num_heads": 2, "num_layers": 2}
    return OCSlotSSM(
        TokenSpec(TOKEN, TOKENS),
        SLOTS,
        DIM,
        bottom_up_heads=reader_heads,
        bottom_up_bias=True,
        token_projection="per_layer",
        ssm=ssm,
        mixer="attention_mlp" if ffn else "attention",
        **sizes | arguments,
    ).double()


@pytest.mark.parametrize("ssm", ["mamba", "mamba2"])
@pytest.mark.parametrize(
    ("fused", "ffn", "reader_heads"), [(True, False, 1), (False, True, 4)], ids=["demo", "all options"]
)
def test_their_weights_give_their_slots(ssm, fused, ffn, reader_heads):
    theirs, core = Published(ssm, fused, ffn, reader_heads), core_for(ssm, ffn, reader_heads)
    load_slotssm(core, theirs.state_dict())
    tokens = torch.randn(BATCH, STEPS, TOKENS, TOKEN, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(core(tokens).slots, theirs(tokens), rtol=1e-9, atol=1e-10)


def test_the_settings_of_their_example_take_its_weights():
    theirs = {name: value.shape for name, value in OCSlotSSM.original(TokenSpec(256, 4)).state_dict().items()}
    assert theirs["readers.3.token_projection.weight"] == (256, 256)
    assert theirs["readers.0.attention.key_value.bias"] == (512,)
    assert theirs["layers.0.ssm.in_proj.weight"] == (2 * 512 + 2 * 128 + 8, 256)
    assert not any("mlp" in name for name in theirs)
    assert OCSlotSSM.original(TokenSpec(256, 4)).layers[0].mixer.attention.num_heads == 4


def test_initial_weights_are_those_of_pytorchs_layers_and_normal_slots():
    torch.manual_seed(0)
    core = OCSlotSSM(TokenSpec(TOKEN, TOKENS), 100, DIM, init="slotssm", bottom_up_bias=True)
    assert core.slot_init.slots.abs().max() > 2.2  # not cut off at two deviations
    assert core.slot_init.slots.std().item() == pytest.approx(1, rel=0.05)
    maps = [core.token_projection, core.readers[0].attention.key_value, core.readers[1].attention.output]
    maps += [core.layers[0].mixer.attention.query_key_value, core.layers[1].mixer.mlp.contract]
    for layer in maps:
        bound = layer.in_features**-0.5
        assert 0.95 * bound < layer.weight.abs().max() <= bound
        assert 0.7 * bound < layer.bias.abs().max() <= bound
    plain = OCSlotSSM(TokenSpec(TOKEN, TOKENS), 100, DIM, bottom_up_bias=True)
    assert not plain.readers[0].attention.query.bias.any()
    assert plain.slot_init.slots.abs().max() <= 2
    # time scales of the SSM are mamba-ssm's either way
    assert core.layers[0].ssm.dt_proj.bias.std() > 0.5
    assert torch.equal(core.layers[0].ssm.A_log, plain.layers[0].ssm.A_log)
