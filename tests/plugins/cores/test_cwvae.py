"""CW-VAE: ticks, blocks, divergences, samples, and the laws that a core of several levels keeps."""

from functools import partial

import pytest
import torch
from slotbench_plugins.cores.cwvae import CWVAE, STD_OFFSET, GaussianHead, _noise, gaussian_divergence
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

from slotbench.interfaces import TokenSpec
from slotbench.nn.slot_init import drawn_by_clip
from slotbench.testing.aids import move_off_initial_values
from slotbench.testing.laws import (
    details_are_of_their_steps,
    splitting_carries_state,
)

SPEC = TokenSpec(dim=6, num_tokens=2)
FACTOR, TOP = 2, 4
three_levels = partial(CWVAE, num_levels=3, factor=FACTOR, dim=8, latent_dim=3, feature_dim=10)


def core_of(**arguments) -> CWVAE:
    torch.manual_seed(0)
    core = three_levels(SPEC, **arguments)
    move_off_initial_values(core)
    return core.double().eval()


def tokens_of(time: int, batch: int = 2, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, time, 2, 6, generator=generator, dtype=torch.float64)


def read(core: CWVAE, tokens, state=None):
    torch.manual_seed(0)
    with torch.no_grad():
        return core(tokens, state)


def test_the_divergence_is_that_of_torch():
    torch.manual_seed(0)
    mean, prior_mean = torch.randn(2, 5, 7, dtype=torch.float64)
    std, prior_std = torch.rand(2, 5, 7, dtype=torch.float64) + 0.05
    expected = kl_divergence(Normal(mean, std), Normal(prior_mean, prior_std)).sum(dim=-1)
    torch.testing.assert_close(gaussian_divergence(mean, std, prior_mean, prior_std), expected)


def test_the_offset_of_a_deviation_is_added_before_its_layer():
    torch.manual_seed(0)
    head, x = GaussianHead(4, 3).double(), torch.randn(5, 4, dtype=torch.float64)
    logits = x @ head.std.weight.T + STD_OFFSET * head.std.weight.sum(dim=1) + head.std.bias
    mean, std = head(x)
    torch.testing.assert_close(std, F.softplus(logits) + 1e-4)
    torch.testing.assert_close(mean, head.mean(x))


def test_a_level_ticks_every_so_many_frames_and_pays_only_then():
    divergence = read(core_of(), tokens_of(10)).details["kl"]
    assert divergence.shape == (2, 10, 3)
    for level, period in enumerate((1, FACTOR, TOP)):
        ticks = torch.arange(10) % period == 0
        assert (divergence[:, ticks, level] > 0).all()
        assert (divergence[:, ~ticks, level] == 0).all()


def test_the_loss_is_the_divergence_of_a_frame_summed_over_levels():
    output = read(core_of(), tokens_of(10))
    assert list(output.losses) == ["kl"]
    torch.testing.assert_close(output.losses["kl"], output.details["kl"].sum(dim=2).mean())


def test_the_posterior_sees_its_block_and_nothing_later():
    core = core_of()
    assert not core.causal
    before = read(core, tokens_of(12)).slots
    changed = tokens_of(12)
    changed[:, 7] += 1  # the last frame of the second block of the top level
    moved = (read(core, changed).slots - before).abs().amax(dim=(0, 2, 3)) > 1e-9
    assert moved.tolist() == [False] * 4 + [True] * 8


@pytest.mark.parametrize("time", [9, 10, 11, 12])
def test_what_a_block_lacks_counts_as_zeros(time):
    """The features of a frame that is not there, at every level above the first."""
    core = core_of(feature_layers=0)
    padded = torch.cat([tokens_of(time), torch.zeros(2, 12 - time, 2, 6, dtype=torch.float64)], dim=1)
    torch.testing.assert_close(read(core, tokens_of(time)).slots, read(core, padded).slots[:, :time])


def test_a_cut_between_blocks_of_the_top_level_changes_nothing():
    splitting_carries_state(three_levels, cuts=(4, 8), time=11)
    details_are_of_their_steps(three_levels, cuts=(4, 8), time=11)


def test_a_call_in_the_middle_of_a_block_leaves_the_upper_levels_until_their_tick():
    core = core_of()
    first = read(core, tokens_of(5))
    after = read(core, tokens_of(2, seed=1), first.state)
    same = [
        torch.equal(old.hidden, new.hidden) for old, new in zip(first.state.levels, after.state.levels, strict=True)
    ]
    assert same == [False, False, True]  # frame 6 is a tick of the second level, frame 8 one of the third
    assert (after.details["kl"][:, :, 2] == 0).all()
    assert (after.details["kl"][:, :, 1] > 0).tolist() == [[False, True]] * 2


@pytest.mark.parametrize("context", [1, 5, 8])
def test_imagining_in_pieces_is_imagining_at_once(context):
    core = core_of()
    state = read(core, tokens_of(context)).state
    with torch.no_grad():
        whole, pieces = core.imagine(state, 9), []
        for steps in (1, 5, 3):
            pieces.append(core.imagine(state, steps))
            state = pieces[-1].state
    torch.testing.assert_close(torch.cat([piece.slots for piece in pieces], dim=1), whole.slots)
    assert not whole.losses
    with torch.no_grad():
        shorter = core.imagine(read(core, tokens_of(context)).state, 4).slots
    torch.testing.assert_close(shorter, whole.slots[:, :4])


def test_a_sample_is_of_its_clip_and_of_nothing_else():
    core, tokens = core_of(), tokens_of(5, batch=3)

    def imagined(clips, numbers):
        torch.manual_seed(len(clips))
        with drawn_by_clip(numbers), torch.no_grad():
            return core.imagine(core(clips).state, 6).slots

    together = imagined(tokens, [7, 8, 9])
    torch.testing.assert_close(imagined(tokens[1:2], [8])[0], together[1])
    assert (imagined(tokens[1:2], [3])[0] - together[1]).abs().max() > 1e-3


def test_noise_is_standard_normal_and_of_its_place():
    drawn = _noise(torch.arange(50), torch.arange(400), 20)
    assert drawn.shape == (50, 400, 20)
    assert drawn.mean().abs() < 0.01
    assert abs(drawn.std() - 1) < 0.01
    assert abs(drawn.pow(4).mean() - 3) < 0.05
    for axis in range(3):
        first, second = drawn.narrow(axis, 0, drawn.shape[axis] - 1), drawn.narrow(axis, 1, drawn.shape[axis] - 1)
        assert (first * second).mean().abs() < 0.01
    torch.testing.assert_close(_noise(torch.tensor([7]), torch.tensor([3, 11]), 20)[0], drawn[7, [3, 11]])


def test_keras_initial_weights_count_gates_as_one_matrix_and_the_zeros_above_the_top_level():
    """Dense layers stay as they are: Keras' Xavier for a matrix is PyTorch's."""

    def cells(init):
        torch.manual_seed(0)
        return three_levels(SPEC, dim=60, latent_dim=30, init=init).cells

    def bound(weight):
        return float(weight.detach().abs().max())

    for plain, keras in zip(cells("plain"), cells("keras"), strict=True):
        assert bound(keras.gru.input_map.weight) == pytest.approx((6 / (60 + 180)) ** 0.5, rel=0.01)
        assert bound(plain.gru.input_map.weight) == pytest.approx((6 / 120) ** 0.5, rel=0.01)
        recurrent = keras.gru.hidden_map.weight
        torch.testing.assert_close(recurrent.T @ recurrent, torch.eye(60), rtol=0, atol=1e-5)
        assert torch.equal(keras.posterior[0].weight, plain.posterior[0].weight)
    # every level's first layer reads a sample of 30 and 90 of the level above, or as many zeros
    for cell in cells("keras"):
        assert bound(cell.embed[0].weight) == pytest.approx((6 / (30 + 90 + 60)) ** 0.5, rel=0.01)
