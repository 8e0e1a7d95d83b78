"""Each objective is what the public code computes, written once more in loops: value, and gradient by differences."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slotbench.interfaces import Scene, SlotSpec, VideoSpec
from slotbench.objectives import FeatureSimilarity, Reconstruction, SlotContrast


def log_softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    total = log(sum(exp(one - top) for one in logits))
    return [one - top - total for one in logits]


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(np.linalg.norm(vector), 1e-12)


def similarity_loss(painted: np.ndarray, target: np.ndarray, temperature: float, threshold: float, shift: int) -> float:
    """martius-lab/videosaur: `FeatureTimeSimilarity` with softmax, `CrossEntropyLoss` of all but the last frames."""
    batch, time, patches = painted.shape[0], painted.shape[1], painted.shape[-1]
    terms = []
    for clip in range(batch):
        for step in range(time - shift):
            for patch in range(patches):
                cosines = [
                    float(unit(target[clip, step, :, patch]) @ unit(target[clip, step + shift, :, other]))
                    for other in range(patches)
                ]
                near = [other for other in range(patches) if cosines[other] >= threshold]
                if near:
                    shares = dict(zip(near, log_softmax([cosines[other] / temperature for other in near]), strict=True))
                else:
                    shares = dict.fromkeys(range(patches), -log(patches))
                predicted = log_softmax(painted[clip, step, :, patch].tolist())
                terms.append(-sum(exp(share) * predicted[other] for other, share in shares.items()))
    return float(np.mean(terms))


def contrast_loss(slots: np.ndarray, temperature: float, in_batch: bool) -> float:
    """martius-lab/slotcontrast: `Slot_Slot_Contrastive_Loss`, whose classes are the slots of the earlier step."""
    batch, time, count, _ = slots.shape
    terms = []
    for step in range(1, time):
        for clip in range(batch):
            for slot in range(count):
                others = [(b, k) for b in (range(batch) if in_batch else [clip]) for k in range(count)]
                now = unit(slots[clip, step, slot])
                logits = [float(unit(slots[b, step - 1, k]) @ now) / temperature for b, k in others]
                terms.append(-log_softmax(logits)[others.index((clip, slot))])
    return float(np.mean(terms))


def differences(function: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[place] = 1e-5
        found[place] = (function(at + step) - function(at - step)) / 2e-5
    return found


def scene(slots=None, target=None, painted=None) -> Scene:
    return Scene(slots, None, None, target, painted)


SIZES = st.tuples(st.integers(1, 2), st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.integers(2, 4))


@settings(max_examples=15, deadline=None)
@given(SIZES, st.integers(0, 99), st.sampled_from([0.075, 0.25, 1.0]), st.sampled_from([-1.0, 0.0, 0.6]), st.booleans())
def test_feature_similarity_is_that_of_the_public_code(sizes, seed, temperature, threshold, later):
    batch, time, rows, cols, dim = sizes
    shift, patches, random = 2 if later and time > 2 else 1, rows * cols, np.random.default_rng(seed)
    target = random.normal(size=(batch, time, dim, patches))
    painted = random.normal(size=(batch, time, patches, patches))
    made = FeatureSimilarity(SlotSpec(2, 4), VideoSpec(dim, rows, cols), 1.0, temperature, threshold, shift)
    assert made.paints == patches
    logits = torch.tensor(painted).unflatten(-1, (rows, cols)).requires_grad_()
    value = made(scene(target=torch.tensor(target).unflatten(-1, (rows, cols)), painted=logits))
    value.backward()

    def reference(at: np.ndarray) -> float:
        return similarity_loss(at, target, temperature, threshold, shift)

    assert value.item() == pytest.approx(reference(painted), abs=1e-9)
    np.testing.assert_allclose(logits.grad.flatten(3).numpy(), differences(reference, painted), atol=1e-8)


def test_a_patch_that_is_like_none_has_equal_shares():
    made = FeatureSimilarity(SlotSpec(2, 4), VideoSpec(2, 1, 3), threshold=0.9)
    target = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0]] * 3])[None].mT[..., None, :]
    shares = made.shares(target)[0, 0]
    torch.testing.assert_close(shares, torch.full((3, 3), 1 / 3))


@settings(max_examples=15, deadline=None)
@given(SIZES, st.integers(0, 99), st.sampled_from([0.1, 0.5]), st.sampled_from(["batch", "clip"]))
def test_slot_contrast_is_that_of_the_public_code(sizes, seed, temperature, negatives):
    batch, time, count, _, dim = sizes
    given_slots = np.random.default_rng(seed).normal(size=(batch, time, count, dim))
    made = SlotContrast(SlotSpec(count, dim), VideoSpec(3, 2, 2), 1.0, temperature, negatives)
    slots = torch.tensor(given_slots).requires_grad_()
    value = made(scene(slots))
    value.backward()

    def reference(at: np.ndarray) -> float:
        return contrast_loss(at, temperature, negatives == "batch")

    assert value.item() == pytest.approx(reference(given_slots), abs=1e-9)
    np.testing.assert_allclose(slots.grad.numpy(), differences(reference, given_slots), atol=1e-7)


def test_slots_are_told_from_those_before_them_and_not_after():
    """The code's softmax has a direction: a slot that two later slots resemble costs, two earlier ones do not alike."""
    slots = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.9, 0.1]]])[None]
    made = SlotContrast(SlotSpec(2, 2), VideoSpec(3, 2, 2))
    assert made(scene(slots)).item() != pytest.approx(made(scene(slots.flip(1))).item(), abs=1e-3)


def test_reconstruction_is_the_mean_squared_error():
    target, painted = torch.randn(2, 2, 3, 4, 5), torch.randn(2, 2, 3, 4, 5)
    made = Reconstruction(SlotSpec(2, 2), VideoSpec(3, 4, 5))
    assert made(scene(target=target, painted=painted)).item() == pytest.approx(
        np.square((painted - target).numpy()).mean(), rel=1e-6
    )


@pytest.mark.parametrize("arguments", [{"temperature": 0.0}, {"shift": 0}])
def test_arguments_of_similarity_that_cannot_be(arguments):
    with pytest.raises(ValueError, match="give a positive one, and 1 or more steps"):
        FeatureSimilarity(SlotSpec(2, 2), VideoSpec(3, 2, 2), **arguments)


@pytest.mark.parametrize("arguments", [{"temperature": -1.0}, {"negatives": "batches"}])
def test_arguments_of_contrast_that_cannot_be(arguments):
    with pytest.raises(ValueError, match="give a positive one, batch or clip"):
        SlotContrast(SlotSpec(2, 2), VideoSpec(3, 2, 2), **arguments)
