"""The discriminator: sizes, terms by hand, one optimiser in the place of two, and trainings with it and with LPIPS."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from code_tasks import balls, frame_task, quiet_trainer
from slotbench_plugins.tokenizers.vqgan import VQGAN
from torch import nn
from torch.nn import functional as F

from slotbench.nn.parameters import trainable_parameters
from slotbench.pretrained.alexnet import AlexNetFeatures
from slotbench.tasks.codes.adversarial import Adversary, PatchDiscriminator, adaptive_weight, hinge_loss
from slotbench.tasks.metric_weights import MetricWeights

TINY = partial(VQGAN, num_codes=6, embedding_dim=4, channels=4, multipliers=(1, 1), map_channels=4)
HEADS = {f"lin{i}.model.1.weight": width for i, width in enumerate((64, 192, 384, 256, 256))}


def painter():
    """A network whose last layer is a convolution to pixels."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 1)).double()


def adversary(start=0):
    torch.manual_seed(1)
    made = Adversary(channels=3, side=24, weight=0.5, start=start)
    made.discriminator = PatchDiscriminator(3, width=4)
    return made.double()


def images():
    return torch.rand(4, 3, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_the_discriminator_has_the_sizes_of_the_public_code():
    layers = [(3, 64, 1), (64, 128, 0), (128, 256, 0), (256, 512, 0), (512, 1, 1)]
    convs = sum(before * after * 16 + bias * after for before, after, bias in layers)
    with torch.device("meta"):
        model = PatchDiscriminator(3)
        assert model(torch.empty(2, 3, 256, 256)).shape == (2, 1, 30, 30)
        assert model(torch.empty(2, 3, 24, 24)).shape == (2, 1, 1, 1)
    assert trainable_parameters(model)["total"] == convs + 2 * (128 + 256 + 512) == 2_765_633
    weights = torch.cat([m.weight.flatten() for m in PatchDiscriminator(3) if isinstance(m, nn.Conv2d)])
    assert weights.std().item() == pytest.approx(0.02, rel=0.01)


def test_the_adaptive_weight_is_the_ratio_of_two_gradients():
    layer = torch.tensor([2.0, -1.0], dtype=torch.float64, requires_grad=True)
    # their gradients at the layer are (3, 4) and (0, 2 * -1) * 5
    error, term = (layer * torch.tensor([3.0, 4.0])).sum(), 5 * layer[1].square()
    found = adaptive_weight(error, term, layer)
    assert found.item() == pytest.approx(5 / (10 + 1e-4))
    assert not found.requires_grad
    assert adaptive_weight(error, 0 * term, layer, largest=100.0).item() == 100


def test_neither_term_has_a_gradient_to_the_other_network():
    part, network = adversary(), painter()
    painted = network(images())
    terms = part(painted, images(), F.mse_loss(painted, images()), network[-1].weight, step=0)
    terms["adversarial"].backward(retain_graph=True)
    assert all(parameter.grad is None for parameter in part.parameters())
    assert all(parameter.grad.any() for parameter in network.parameters())
    before = [parameter.grad.clone() for parameter in network.parameters()]
    terms["discriminator"].backward()
    assert all(parameter.grad.any() for parameter in part.parameters() if parameter.ndim > 1)
    assert all(map(torch.equal, before, (parameter.grad for parameter in network.parameters())))


def test_one_optimiser_takes_the_steps_of_two():
    together, networks = (adversary(), painter()), (adversary(), painter())
    adam = partial(torch.optim.AdamW, lr=1e-2, betas=(0.5, 0.9))
    one = adam([*together[0].parameters(), *together[1].parameters()])
    two = [adam(network.parameters()) for network in networks]
    for _ in range(3):
        painted = together[1](images())
        error = F.l1_loss(painted, images())
        one.zero_grad()
        (error + sum(together[0](painted, images(), error, together[1][-1].weight, step=0).values())).backward()
        one.step()
        judge, network = networks[0].discriminator, networks[1]
        painted = network(images())
        error, term = F.l1_loss(painted, images()), -judge(2 * painted - 1).mean()
        norms = [torch.autograd.grad(x, network[-1].weight, retain_graph=True)[0].norm() for x in (error, term)]
        loss = error + 0.5 * norms[0] / (norms[1] + 1e-4) * term
        gradients = torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
        fixed = painted.detach()
        two[0].zero_grad()
        hinge_loss(judge(2 * images() - 1), judge(2 * fixed - 1)).backward()
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            parameter.grad = gradient.detach()
        for optimiser in two:
            optimiser.step()
    for ours, theirs in zip(together, networks, strict=True):
        for first, second in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(first, second)


def test_a_tokenizer_is_trained_against_it_from_the_named_step_on():
    data = balls(resolution=24)
    task = frame_task(data, TINY, frame_error="absolute", adversarial_weight=0.8, adversarial_start=1)
    first = {name: value.clone() for name, value in task.adversary.named_parameters()}
    trainer = quiet_trainer(max_steps=1, limit_val_batches=0)
    trainer.fit(task, datamodule=data)
    assert all(torch.equal(value, first[name]) for name, value in task.adversary.named_parameters() if value.ndim < 2)
    assert trainer.callback_metrics["train/discriminator"] == 0
    trainer = quiet_trainer(max_steps=2, limit_val_batches=0, log_every_n_steps=1)
    trainer.fit(task, datamodule=data)
    assert trainer.callback_metrics["train/discriminator"] > 0
    assert not all(torch.equal(value, first[name]) for name, value in task.adversary.named_parameters())
    assert set(task.parts) == {"tokenizer", "discriminator"}


def test_what_it_paints_is_compared_in_the_range_of_vq_gan():
    data = balls()
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    task = frame_task(data, TINY, frame_error="absolute").eval()
    output = task(batch)
    expected = ((2 * output.reconstruction - 1) - (2 * batch.frames - 1)).abs().mean()
    torch.testing.assert_close(task.loss(output, batch), expected + sum(output.losses.values()))


@pytest.fixture
def weights(tmp_path):
    """Random weights of LPIPS."""
    torch.manual_seed(0)
    heads = {name: torch.rand(1, width, 1, 1) for name, width in HEADS.items()}
    torch.save(AlexNetFeatures().state_dict() | heads, tmp_path / "lpips.pt")
    return str(tmp_path / "lpips.pt")


def test_lpips_is_a_term_of_the_loss_and_in_no_checkpoint(weights):
    data = balls(resolution=32)
    task = frame_task(data, TINY, perceptual_weight=0.7, metric_weights=MetricWeights(weights))
    task.setup("fit")
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    output = task.eval()(batch)
    found, distance = task.loss(output, batch), task._lpips[0](output.reconstruction, batch.frames).mean()
    plain = frame_task(data, TINY).eval()
    torch.testing.assert_close(found, plain.loss(output, batch) + 0.7 * distance)
    found.backward()
    assert all(parameter.grad.isfinite().all() for parameter in task.tokenizer.parameters())
    assert task.state_dict().keys() == plain.state_dict().keys()
