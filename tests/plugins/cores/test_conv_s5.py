"""ConvS5 as a whole: counts of convs5.md 4.4, and the criteria of section 10 that concern the stack."""

from __future__ import annotations

import torch
from slotbench_plugins.cores.conv_s5 import ConvS5
from slotbench_plugins.cores.conv_ssm import ConvSSM
from torch import nn

from slotbench.interfaces import TokenSpec
from slotbench.nn.diagonal_ssm import hippo_eigenvalues

SPEC = TokenSpec(dim=12, num_tokens=12, grid=(3, 4))


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def built(dtype=torch.float64, **arguments):
    torch.manual_seed(0)
    core = ConvS5(SPEC, **{"dim": 32, "state_dim": 8, **arguments})
    with torch.no_grad():
        for parameter in core.parameters():
            # off the zeros and ones of biases and norms
            parameter.add_(0.05 * torch.randn_like(parameter))
    return core.to(dtype)


def clip(batch=2, time=6, dtype=torch.float64, spec=SPEC):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, time, spec.num_tokens, spec.dim, generator=generator, dtype=torch.float64).to(dtype)


def test_the_papers_model_has_its_number_of_parameters():
    tokens = TokenSpec(dim=257, num_tokens=256, grid=(16, 16))
    with torch.device("meta"):
        core, released = ConvS5.paper(tokens), ConvS5.released_600(tokens)
    assert count(core.layers) == 18_893_824
    # encoder 1,223,552, two rows of an action table of one channel, decoder 1,497,985
    assert count(core) + 1_223_552 + 2 + 1_497_985 == 21_681_411
    layer = 3 * 64 + 4 * 64 * 128 * 9 + 2 * (3 * 128 + 128**2 * 9) + 2 * 128
    assert count(released) == 258 * 128 + 8 * layer


def test_the_ablation_with_kernels_of_one_cell_has_its_number_of_parameters():
    with torch.device("meta"):
        core = ConvS5(TokenSpec(272, 256, (16, 16)), 512, 512, 8, 1, 1, activation="half_glu")
    p, u = 256, 512
    assert count(core.layers) == 8 * (3 * p + 4 * p * u + 2 * u + u**2 + u + 2 * u)


def test_field_of_view_grows_with_the_layers():
    spec = TokenSpec(dim=4, num_tokens=81, grid=(9, 9))
    torch.manual_seed(0)
    # GroupNorm sees the whole frame; the half GLU does not
    for num_layers, reach in ((1, 1), (2, 2)):
        core = ConvS5(spec, 16, 4, num_layers, b_kernel=3, c_kernel=1, activation="half_glu").double()
        tokens = clip(1, 3, spec=spec)
        changed = tokens.clone()
        changed[:, 0, 40] += 1
        touched = (core(changed).slots - core(tokens).slots).abs().amax((0, 1, 3)).unflatten(0, (9, 9)) > 1e-12
        expected = torch.zeros(9, 9, dtype=torch.bool)
        expected[4 - reach : 5 + reach, 4 - reach : 5 + reach] = True
        assert torch.equal(touched, expected)


def test_checkpointed_layers_give_the_same_outputs_and_gradients():
    tokens, results = clip(), []
    for checkpoint_layers in (False, True):
        core = built(checkpoint_layers=checkpoint_layers)
        slots = core(tokens).slots
        slots.square().mean().backward()
        results.append([slots.detach(), *(parameter.grad for parameter in core.parameters())])
    for plain, checkpointed in zip(*results, strict=True):
        torch.testing.assert_close(checkpointed, plain, rtol=0, atol=1e-12)


def test_long_skips_add_the_input_of_layer_3_to_layer_8_and_of_6_to_11():
    core = built(num_layers=12, skip_connections=True, dim=8, state_dim=4)
    seen = []
    for layer in core.layers:
        layer.register_forward_hook(lambda _, inputs, outputs: seen.append((inputs[0], outputs[0])))
    core(clip())
    for index in range(1, 12):
        expected = seen[index - 1][1]
        if index in (8, 11):
            expected = expected + seen[{8: 3, 11: 6}[index]][0]
        torch.testing.assert_close(seen[index][0], expected, rtol=0, atol=1e-12)


def test_eigenvalues_stay_clipped_while_training():
    """80 steps of AdamW on a loss that pulls them over the edge."""
    torch.manual_seed(0)
    core, tokens = ConvS5(TokenSpec(4, 4, (2, 2)), 16, 8, 1, initialisation="random"), clip(1, 6, torch.float32, SPEC)
    tokens = tokens[:, :, :4, :4]
    optimiser = torch.optim.AdamW(core.parameters(), lr=2e-2)
    head = nn.Linear(16, 1)
    for _ in range(80):
        optimiser.zero_grad()
        output = core(tokens)
        loss = head(output.slots).square().mean() - 1e-3 * output.state[0].hidden.abs().mean()
        loss.backward()
        optimiser.step()
    assert output.slots.isfinite().all()
    dynamics = core.layers[0].ssm.dynamics
    assert dynamics.Lambda_re.max() > 0
    assert dynamics.eigenvalues().real.max() <= -1e-4
    assert dynamics().decay.abs().max() < 1
    assert core(tokens.repeat(1, 100, 1, 1)).slots.isfinite().all()


SQUARE = TokenSpec(dim=5, num_tokens=4, grid=(2, 2))


def eigenvalues(core):
    dynamics = core.layers[0].ssm.dynamics
    return torch.complex(dynamics.Lambda_re, dynamics.Lambda_im)


def test_it_has_the_parameters_of_conv_s5_and_random_eigenvalues():
    torch.manual_seed(0)
    ours, conv_s5 = ConvSSM(SQUARE, state_dim=512, num_layers=1), ConvS5(SQUARE, state_dim=512, num_layers=1)
    assert {n: p.shape for n, p in ours.named_parameters()} == {n: p.shape for n, p in conv_s5.named_parameters()}
    torch.testing.assert_close(eigenvalues(conv_s5), hippo_eigenvalues(512).to(torch.complex64))
    share = (eigenvalues(ours).real > 0).float().mean()
    assert 0.4 < share < 0.6
    assert ours.layers[0].ssm.dynamics.eigenvalues().real.max() <= -1e-4


def test_a_named_initialisation_wins_over_that_of_the_class():
    torch.testing.assert_close(
        eigenvalues(ConvSSM(SQUARE, state_dim=8, initialisation="hippo")), hippo_eigenvalues(8).to(torch.complex64)
    )
    assert (
        eigenvalues(ConvS5(SQUARE, state_dim=8, initialisation="lin")).imag[1].item() == torch.tensor(torch.pi).item()
    )
