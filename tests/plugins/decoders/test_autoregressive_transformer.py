"""AutoregressiveTransformer: sampling beside its reference, its start, and its masks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.decoders import autoregressive_transformer
from slotbench_plugins.decoders.autoregressive_transformer import AutoregressiveTransformer
from torch.nn import functional as F

from slotbench.interfaces import PartError, SlotSpec, VideoBatch, VideoSpec
from slotbench.ops.code_sampling import can_decode
from slotbench.ops.code_sampling import cell as cell_module
from slotbench.testing.aids import move_off_initial_values

SLOTS, CODES = SlotSpec(num_slots=3, dim=6), VideoSpec(channels=5, height=3, width=4)


def decoder(**arguments):
    torch.manual_seed(0)
    made = AutoregressiveTransformer(SLOTS, CODES, **{"dim": 8, "num_layers": 2, "num_heads": 2} | arguments).double()
    move_off_initial_values(made)
    return made.eval()


def clips(codes):
    frames = torch.zeros(*codes.shape[:2], 3, 12, 16, dtype=torch.float64)
    time = torch.arange(codes.shape[1]).expand(len(codes), -1)
    return VideoBatch(frames, time, target=codes, target_time=time)


@pytest.fixture(params=["compiled", "torch"])
def cell(request, monkeypatch):
    """Both ways to decode a cell."""
    if request.param == "torch":
        monkeypatch.setattr(autoregressive_transformer, "can_decode", lambda slots: False)
    return request.param


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_kept_keys_and_values_sample_what_whole_passes_sample(temperature, cell):
    model, slots = decoder(), torch.randn(2, 2, 3, 6, dtype=torch.float64)
    torch.manual_seed(1)
    codes, decoded = model.sample(slots, None, temperature)
    torch.manual_seed(1)
    assert torch.equal(codes, model.sample_by_prefix(slots, temperature))
    forced = model(slots, clips(codes))
    torch.testing.assert_close(decoded.reconstruction, forced.reconstruction)
    torch.testing.assert_close(decoded.masks, forced.masks)


@settings(max_examples=15, deadline=None)
@given(
    frames=st.integers(1, 8), heads=st.integers(1, 3), width=st.integers(1, 9), layers=st.integers(1, 3),
    ratio=st.integers(1, 4), seed=st.integers(0, 1000),
)  # fmt: skip
def test_the_compiled_cell_is_the_cell_of_torch(frames, heads, width, layers, ratio, seed):
    model = decoder(dim=heads * width, num_heads=heads, num_layers=layers, mlp_ratio=ratio)
    torch.manual_seed(seed)
    context = torch.randn(frames, 3, heads * width, dtype=torch.float64)
    with torch.inference_mode():
        compiled, plain = model._compiled_cell(context), model._cell(context)
        for number in range(12):
            token = 3 * torch.randn(frames, heads * width, dtype=torch.float64)
            torch.testing.assert_close(compiled(token, number), plain(token, number))


def test_the_compiled_cell_is_taken_for_few_frames_of_full_precision_on_a_cpu(monkeypatch):
    slots = torch.zeros(1, 3, 8)
    assert can_decode(slots)
    assert can_decode(slots.double())
    assert not can_decode(slots.expand(100, -1, -1))
    assert not can_decode(slots[:0])
    assert not can_decode(slots.bfloat16())
    assert not can_decode(slots.to("meta"))
    with torch.autocast("cpu"):
        assert not can_decode(slots)
    monkeypatch.setattr(cell_module, "numba_works", lambda: False)
    assert not can_decode(slots)


@pytest.mark.parametrize(
    ("init", "start", "places"), [("steve", 0.0722, 0.8796), ("slate", 1.0, 0.8796), ("normal", 1.0, 1.0)]
)
def test_where_the_start_and_the_places_begin(init, start, places):
    torch.manual_seed(0)
    codes = VideoSpec(channels=512, height=16, width=16)
    made = [AutoregressiveTransformer(SLOTS, codes, dim=192, num_layers=1, init=init) for _ in range(20)]
    starts, positions = (torch.stack([getattr(x, name).detach() for x in made]) for name in ("start", "positions"))
    assert starts.std() == pytest.approx(start, rel=0.05)
    assert positions.std() == pytest.approx(places, rel=0.01)
    assert made[0].codes.weight.detach().std() == pytest.approx(1, rel=0.02)
    # Xavier-uniform of one row of 192, and cut off at two deviations
    assert (starts.abs().max() <= (6 / (192 + 192)) ** 0.5) == (init == "steve")
    assert (positions.abs().max() <= 2) == (init != "normal")


def test_a_temperature_draws_by_the_logits():
    model, slots = decoder(), torch.randn(1, 1, 3, 6, dtype=torch.float64).expand(4000, -1, -1, -1)
    codes, decoded = model.sample(slots, None, 2.0)
    expected = (decoded.reconstruction[0, 0, :, 0, 0] / 2).softmax(0)
    shares = F.one_hot(codes[:, 0, 0, 0], 5).double().mean(0)
    torch.testing.assert_close(shares, expected, atol=0.04, rtol=0)


def test_masks_are_the_weights_on_the_slots_of_all_layers_and_heads():
    model, slots = decoder(), torch.randn(1, 2, 3, 6, dtype=torch.float64)
    codes = torch.randint(5, (1, 2, 3, 4))
    seen = []
    for layer in model.layers:
        layer.register_forward_hook(lambda layer, given, out: seen.append(out[1]))
    decoded = model(slots, clips(codes))
    # (frames, heads, cells, slots): the query of a cell is the one that predicts it
    torch.testing.assert_close(decoded.masks[0, 1, :, 1, 2], torch.stack(seen)[:, 1, :, 6].mean((0, 1)))
    torch.testing.assert_close(decoded.masks.sum(2), torch.ones_like(decoded.masks[:, :, 0]))


def test_without_true_codes_it_says_which_task_gives_them():
    for batch in (None, clips(torch.randint(5, (1, 1, 4, 3)))):
        with pytest.raises(PartError, match="use it in the task CodeAutoencoding"):
            decoder()(torch.zeros(1, 1, 3, 6, dtype=torch.float64), batch)
