"""Weights of the authors' models of codes and TECO give these models, and come back to the bit (convs5.md 2.8-2.10)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from convs5_authors_code_models import SMALL, CodeLoops, CodeSizes, code_shapes, random_tree, unit
from slotbench_plugins.released_weights.convs5 import from_tree, load_tree

from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec
from slotbench.nn.mask_git import MaskGit
from slotbench.registry import load
from slotbench.tasks.codes.code_prediction import CodePrediction
from slotbench.tasks.codes.teco import TECO
from slotbench.tasks.rollouts.conditions import RolloutOptions

FRAME = VideoSpec(1, 16, 16, num_actions=3)
STEPS = 5
DMLAB = CodeSizes(
    vector_dim=256, num_codes=1024, grid=16, depths=(256,), decoder_depths=(512,), decoder_blocks=4, actions=6,
    action_dim=16, num_layers=8, dim=512, half_state=256, c_kernel=3, output_dim=512, heads=16, mlp_dim=2048,
)  # fmt: skip
TECO_DMLAB = DMLAB._replace(
    teco=True, depths=(256, 512), decoder_depths=(256, 512), half_state=512, output_dim=64, latent_dim=64,
    latent_codes=1024, latent_code_dim=32, prior_dim=512, prior_heads=8, prior_layers=8, prior_code_dim=256,
)  # fmt: skip
COUNTS = {
    "ConvS5": (DMLAB, 99_220_336),
    "S5": (DMLAB._replace(core="S5", dim=1024, half_state=512), 254_275_952),
    "Transformer": (DMLAB._replace(core="FrameTransformer"), 152_050_544),
    "TECO-ConvS5": (TECO_DMLAB, 175_374_000),
    "TECO-S5": (TECO_DMLAB._replace(core="S5", dim=2048, half_state=1024), 180_407_472),
    "TECO-Transformer": (TECO_DMLAB._replace(core="FrameTransformer", dim=1024, mlp_dim=4096), 173_088_944),
}
"""The paper's models of DMLab, and their parameters."""
TOLERANCES = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


def task_of(s: CodeSizes):
    """Our task of such sizes, on codes of 4 x 4 patches."""
    torch.manual_seed(0)
    core = {
        "ConvS5": {
            "state_dim": 2 * s.half_state,
            "b_kernel": s.b_kernel,
            "c_kernel": s.c_kernel,
            "activation_kernel": s.activation_kernel,
            "clip_eigs": False,
            "kernel": "reference",
        },
        "S5": {
            "state_dim": 2 * s.half_state,
            "patch": s.cells,
            "output_dim": s.output_dim,
            "clip_eigs": False,
            "kernel": "reference",
        },
        "FrameTransformer": {
            "num_heads": s.heads,
            "mlp_ratio": s.mlp_dim // s.dim,
            "output_dim": s.output_dim,
        },
    }[s.core]
    parts = (
        partial(load("encoders", "ResNetEncoder"), depths=s.depths, blocks=s.blocks, rescale=False),
        partial(load("cores", s.core), dim=s.dim, num_layers=s.num_layers, **core),
        partial(load("decoders", "ResNetDecoder"), depths=s.decoder_depths, blocks=s.decoder_blocks),
    )
    tokenizer = partial(load("tokenizers", "PatchKMeans"), num_codes=s.num_codes, fit_frames=12, patch_size=4)
    given = {"tokenizer": tokenizer, "rollout": RolloutOptions(2, 2), "data_spec": DataSpec(FRAME, FRAME)}
    if not s.teco:
        return CodePrediction(partial(parts[0], action_dim=s.action_dim), *parts[1:], **given).eval()
    sizes = {"dim": s.prior_dim, "num_heads": s.prior_heads, "num_layers": s.prior_layers, "code_dim": s.prior_code_dim}
    latents = {"num_latent_codes": s.latent_codes, "latent_code_dim": s.latent_code_dim, "latent_dim": s.latent_dim}
    return TECO(*parts, prior=partial(MaskGit, **sizes), action_dim=s.action_dim, **latents, **given).eval()


def clip_of(s: CodeSizes):
    """(codes, actions in our order), of one clip; one action is masked."""
    draw = np.random.default_rng(1)
    return draw.integers(s.num_codes, size=(STEPS, s.grid, s.grid)), np.append(draw.integers(3, size=STEPS - 1), -1)


def given_to_both(name, dtype, frame_mask=None):
    """(task with the tree's weights, batch, loops, what they make of the batch)."""
    s = SMALL[name]
    tree = random_tree(s, np.float32)
    task = task_of(s).to(dtype)
    table = torch.from_numpy(np.random.default_rng(2).standard_normal((s.num_codes, s.vector_dim), dtype=np.float32))
    task.tokenizer.codebook.copy_(table)
    load_tree(task, tree)
    codes, actions = clip_of(s)
    actions[1] = -1
    one_hot = torch.zeros(1, STEPS, 3, dtype=dtype)
    for step, action in enumerate(actions):
        if action >= 0:
            one_hot[0, step, action] = 1
    frames, time = torch.zeros(1, STEPS, 1, 16, 16, dtype=dtype), torch.arange(STEPS)[None]
    hidden = None if frame_mask is None else time >= frame_mask
    batch = VideoBatch(frames, time, actions=one_hot, codes=torch.from_numpy(codes)[None], hidden=hidden)
    loops = CodeLoops({name: value.astype(np.float64) for name, value in tree.items()}, s)
    # theirs leads to the frame of its step, ours from it
    loops.clip = table.numpy().astype(np.float64)[codes], np.append(0, actions[:-1]), frame_mask
    return task, batch, loops, loops(*loops.clip)


def assert_near(ours, theirs, tolerance):
    theirs = torch.from_numpy(theirs)
    assert theirs.std() > 0.05
    torch.testing.assert_close(ours.double(), theirs, rtol=tolerance / 10, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES, ids=["float64", "float32"])
@pytest.mark.parametrize("name", SMALL)
def test_the_authors_weights_give_their_slots_latents_and_logits(name, dtype, tolerance):
    task, batch, loops, theirs = given_to_both(name, dtype)
    found = {}
    task.core.register_forward_hook(lambda _, given, out: found.update(slots=out.slots))
    with torch.no_grad():
        logits = task(batch).reconstruction
    cells = loops.s.cells
    assert_near(found["slots"][0].unflatten(1, (cells, cells)), theirs["slots"], tolerance)
    assert_near(logits[0].permute(0, 2, 3, 1), theirs["logits"], tolerance)
    if not loops.s.teco:
        return
    with torch.no_grad():
        quantised = task.quantiser(task._latents(batch.codes))
    assert quantised.codes[0].tolist() == theirs["codes"].reshape(STEPS, -1).tolist()
    assert_near(quantised.vectors[0].unflatten(1, (cells, cells)), theirs["latents"], tolerance)
    masked = np.random.default_rng(3).random(theirs["codes"][1:].shape) < 0.5
    codes = np.where(masked, -1, theirs["codes"][1:])
    expected = np.stack([loops.prior(*frame) for frame in zip(codes, theirs["slots"], strict=True)])
    given = torch.from_numpy(np.where(masked, task.prior.mask_id, codes)).flatten(1)
    with torch.no_grad():
        prior = task.prior(given, found["slots"][0])
    assert_near(prior.unflatten(1, (cells, cells)), expected, tolerance)


LOSSES = {
    "TECO-ConvS5": (36.24979177693581, 25.290535168735357, -312.72487345439913),
    "TECO-S5": (38.89976098972197, 15.773332908083347, 229.09370223115485),
    "TECO-FrameTransformer": (38.90359827365213, 15.464415766214804, 136.83451872576856),
}
CODEBOOK = 0.10538019119990012
"""Of a clip whose latents are hidden from frame 2 on, made once by `CodeLoops.losses`: the terms of codes and prior,
slope of all terms along random changes of every weight; the term of the codebook, of which no core has a part."""
DRAWN, MASKED = [0, 2, 2], np.random.default_rng(4).random((3, 2, 2)) < 0.6


def random_changes(tree):
    draw = np.random.default_rng(5)
    return {leaf: draw.standard_normal(value.shape) for leaf, value in tree.items()}


@pytest.mark.parametrize("name", LOSSES)
def test_terms_and_gradients_of_teco_are_the_authors(name, monkeypatch):
    task, batch, loops, _ = given_to_both(name, torch.float64, frame_mask=2)
    monkeypatch.setattr("slotbench.nn.mask_git.random_masks", lambda *_: torch.from_numpy(MASKED).flatten(1))
    monkeypatch.setattr(torch, "rand", lambda *_, **__: torch.tensor([[0.1, 0.6, 0.7]], dtype=torch.float64))
    task.train().drop_loss = 0.25
    output = task(batch)
    total = task.loss(output, batch)
    ours = {"recon": total - sum(output.losses.values()), **output.losses}
    recon, prior, slope = LOSSES[name]
    expected = {"recon": recon, "prior": prior, "codebook": CODEBOOK, "commitment": CODEBOOK / 4}
    assert {term: value.item() for term, value in ours.items()} == pytest.approx(expected, rel=1e-13)

    total.backward()
    changes = from_tree(random_changes(loops.tree)).items()
    along = sum((task.get_parameter(leaf).grad * value).sum() for leaf, value in changes)
    assert along.item() == pytest.approx(slope, rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_the_slopes_are_those_of_the_loops(name):
    """By six values in extended precision, whose error is of the sixth order."""
    _, batch, loops, _ = given_to_both(name, torch.float64, frame_mask=2)
    loops.tree = {leaf: value.astype(np.longdouble) for leaf, value in loops.tree.items()}
    vectors, actions, frame_mask = loops.clip
    clip, start, changes = (vectors.astype(np.longdouble), actions, frame_mask), loops.tree, random_changes(loops.tree)
    theirs, step = loops(*clip), np.longdouble(1e-6)
    # the gradient passes the choice of codes
    loops.choice = theirs["codes"], theirs["given"], unit(loops.tree["codebook/codebook"])[theirs["codes"]]

    def loss(steps):
        loops.tree = {leaf: value + steps * step * changes[leaf] for leaf, value in start.items()}
        return sum(loops.losses(loops(*clip), batch.codes[0].numpy(), DRAWN, MASKED).values())

    first, second, third = (loss(steps) - loss(-steps) for steps in (1, 2, 3))
    slope = (45 * first - 9 * second + third) / (60 * step)
    assert float(slope) == pytest.approx(LOSSES[name][2], rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_the_papers_trees_have_the_papers_numbers_of_parameters(name):
    s, expected = COUNTS[name]
    assert sum(int(np.prod(shape)) for shape in code_shapes(s).values()) == expected
