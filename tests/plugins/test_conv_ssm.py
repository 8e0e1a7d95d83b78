"""ConvSSM is ConvS5 with another start."""

from __future__ import annotations

import torch
from slotbench_plugins.cores.conv_s5 import ConvS5
from slotbench_plugins.cores.conv_ssm import ConvSSM

from slotbench.interfaces import TokenSpec
from slotbench.nn.hippo import hippo_eigenvalues

SPEC = TokenSpec(dim=5, num_tokens=4, grid=(2, 2))


def eigenvalues(core):
    dynamics = core.layers[0].ssm.dynamics
    return torch.complex(dynamics.Lambda_re, dynamics.Lambda_im)


def test_it_has_the_parameters_of_conv_s5_and_random_eigenvalues():
    torch.manual_seed(0)
    ours, conv_s5 = ConvSSM(SPEC, state_dim=512, num_layers=1), ConvS5(SPEC, state_dim=512, num_layers=1)
    assert {n: p.shape for n, p in ours.named_parameters()} == {n: p.shape for n, p in conv_s5.named_parameters()}
    torch.testing.assert_close(eigenvalues(conv_s5), hippo_eigenvalues(512).to(torch.complex64))
    share = (eigenvalues(ours).real > 0).float().mean()
    assert 0.4 < share < 0.6
    assert ours.layers[0].ssm.dynamics.eigenvalues().real.max() <= -1e-4


def test_a_named_initialisation_wins_over_that_of_the_class():
    torch.testing.assert_close(
        eigenvalues(ConvSSM(SPEC, state_dim=8, initialisation="hippo")), hippo_eigenvalues(8).to(torch.complex64)
    )
    assert eigenvalues(ConvS5(SPEC, state_dim=8, initialisation="lin")).imag[1].item() == torch.tensor(torch.pi).item()


def test_without_clipping_it_grows():
    torch.manual_seed(0)
    free = ConvSSM(SPEC, clip_eigs=False)
    assert (free.layers[0].ssm.dynamics().decay.abs() > 1).any()
