"""Adam with the epsilon where TensorFlow has it."""

import copy

import numpy as np
import pytest
import torch

from slotbench.tasks.adam_tf import AdamTF


def numpy_adam_tf(start, gradients, lr, beta1, beta2, eps):
    value, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for t, gradient in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        value = value - lr * (m / (1 - beta1**t)) / ((np.sqrt(v) + eps) / np.sqrt(1 - beta2**t))
    return value


def trained(optimizer, parameters, gradients):
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = None if gradient is None else torch.from_numpy(gradient)
        optimizer.step()


def gradients_of(shapes, steps, scale):
    generator = np.random.default_rng(0)
    return [[scale * generator.normal(size=shape) for shape in shapes] for _ in range(steps)]


@pytest.mark.parametrize("scale", [1.0, 1e-7])
def test_steps_are_those_of_the_formula(scale):
    shapes, lr, betas, eps = [(3, 4), (5,)], 0.01, (0.8, 0.99), 1e-6
    gradients = gradients_of(shapes, 12, scale)
    parameters = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    expected = [
        numpy_adam_tf(parameter.detach().numpy(), [step[i] for step in gradients], lr, *betas, eps)
        for i, parameter in enumerate(parameters)
    ]
    trained(AdamTF(parameters, lr=lr, betas=betas, eps=eps), parameters, gradients)
    for parameter, wanted in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), wanted, rtol=1e-12)


def test_it_is_adam_without_an_epsilon_and_another_one_with_small_gradients():
    start = torch.randn(6, dtype=torch.float64)

    def after(optimizer, scale, **arguments):
        parameter = torch.nn.Parameter(start.clone())
        trained(optimizer([parameter], lr=0.1, **arguments), [parameter], gradients_of([(6,)], 5, scale))
        return parameter.detach()

    torch.testing.assert_close(after(AdamTF, 1.0, eps=0.0), after(torch.optim.Adam, 1.0, eps=0.0))
    tf, torchs = after(AdamTF, 1e-7, eps=1e-7) - start, after(torch.optim.Adam, 1e-7, eps=1e-7) - start
    assert (tf.abs() < 0.5 * torchs.abs()).all()


def test_groups_have_rates_of_their_own_and_what_has_no_gradient_stays():
    one, two, idle = (torch.nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(3))
    optimizer = AdamTF([{"params": [one, idle], "lr": 0.1}, {"params": [two], "lr": 0.2}], eps=0.0)
    trained(optimizer, [one, two, idle], [[np.ones(2), np.ones(2), None]])
    torch.testing.assert_close(one, torch.full((2,), 0.9, dtype=torch.float64))
    torch.testing.assert_close(two, torch.full((2,), 0.8, dtype=torch.float64))
    assert idle.tolist() == [1, 1]


def test_a_parameter_that_joins_late_starts_its_own_count():
    early, late = (torch.nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(2))
    trained(AdamTF([early, late], lr=0.1, eps=0.0), [early, late], [[np.ones(1), None], [np.ones(1), np.ones(1)]])
    assert early.item() == pytest.approx(0.8)
    assert late.item() == pytest.approx(0.9)


def test_a_reloaded_optimiser_goes_on_as_if_nothing_had_happened():
    gradients = gradients_of([(4,)], 6, 1.0)
    parameter = torch.nn.Parameter(torch.randn(4, dtype=torch.float64))
    optimizer = AdamTF([parameter])
    trained(optimizer, [parameter], gradients[:3])
    again = torch.nn.Parameter(parameter.detach().clone())
    resumed = AdamTF([again])
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    trained(optimizer, [parameter], gradients[3:])
    trained(resumed, [again], gradients[3:])
    assert torch.equal(parameter, again)


def test_a_closure_is_called_with_gradients_on_and_its_loss_returned():
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = AdamTF([parameter], lr=0.5)

    def closure():
        loss = (3 * parameter).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 3
    assert parameter.item() == pytest.approx(0.5)


@pytest.mark.parametrize("arguments", [{"lr": -1.0}, {"eps": -1e-8}, {"betas": (0.9, 1.0)}, {"betas": (-0.1, 0.9)}])
def test_numbers_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match=f"AdamTF: {next(iter(arguments))} is"):
        AdamTF([torch.nn.Parameter(torch.ones(1))], **arguments)
