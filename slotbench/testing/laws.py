"""The laws of a temporal core, as plain functions that raise AssertionError where a core breaks one.

    for law in BUILT_FROM_A_SPEC:
        law(lambda spec: MyCore(spec, num_slots=4))

Weights are moved off their initial values first, so that a zero-initialised layer hides nothing, and the random
generator is set before every call, so that a core that samples draws the same samples.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, State, TemporalCore, TokenSpec, map_state
from slotbench.ops import available_kernels, set_kernel
from slotbench.ops.dispatch import kernels_of_modules
from slotbench.testing.aids import like, module_snapshot, move_off_initial_values, scalar, unchanged

Build = Callable[[TokenSpec], TemporalCore]

SPEC = TokenSpec(dim=12, num_tokens=4, grid=(2, 2))
FLOAT32_TOLERANCE = 1e-4
_OF_SLOTS = ("active", "communication", "reads", "schemata")


def splitting_carries_state(
    build: Build,
    dtype: torch.dtype = torch.float64,
    cuts: tuple[int, ...] = (1, 4),
    batch: int = 2,
    time: int = 7,
    spec: TokenSpec = SPEC,
) -> None:
    """Law 1: cutting a clip and carrying the state changes neither the slots nor the gradient of the tokens."""
    core, tokens = _core(build, spec, dtype), _tokens(spec, batch, time, dtype).requires_grad_()
    whole = _run(core, tokens)
    pieces, state = [], None
    for start, stop in zip((0, *cuts), (*cuts, time), strict=True):
        output = _run(core, tokens[:, start:stop], state)
        pieces.append(output.slots)
        state = output.state
    rebuilt = torch.cat(pieces, dim=1)
    tolerance = core.split_tolerance if dtype == torch.float64 else FLOAT32_TOLERANCE
    _assert_close(rebuilt, whole.slots, tolerance, f"slots of a clip of {time} steps cut at {cuts}")
    _assert_states_close(state, whole.state, tolerance)
    if dtype == torch.float64:
        weight = like(whole.slots[:, -1])
        (expected,) = torch.autograd.grad((whole.slots[:, -1] * weight).sum(), tokens)
        (through_state,) = torch.autograd.grad((rebuilt[:, -1] * weight).sum(), tokens)
        _assert_close(through_state, expected, tolerance, "the gradient that the carried state hands back")


def past_ignores_future(build: Build, changed: int = 3, batch: int = 2, time: int = 6, spec: TokenSpec = SPEC) -> None:
    """Law 2: changing step t changes no output before t and some output from t on; so does the gradient."""
    core, tokens = _core(build, spec), _tokens(spec, batch, time).requires_grad_()
    output = _run(core, tokens)
    other = tokens.detach().clone()
    other[:, changed] += 1.0
    with torch.no_grad():
        perturbed = _run(core, other)
    difference = (perturbed.slots - output.slots).abs()
    early = _largest(difference[:, :changed])
    assert early <= 1e-12, f"changing step {changed} changed slots of earlier steps by {early:.2g}"
    assert _largest(difference[:, changed:]) > 0, f"changing step {changed} changed no slot of it or of a later step"
    if output.attention is not None and changed > 0:
        assert perturbed.attention is not None, "attention is there for one clip and not for another"
        early = _largest((perturbed.attention - output.attention)[:, :changed].abs())
        assert early <= 1e-12, f"changing step {changed} changed attention of earlier steps by {early:.2g}"
    if changed > 0:
        (gradient,) = torch.autograd.grad(scalar(output.slots[:, :changed]), tokens)
        leak = _largest(gradient[:, changed:].abs())
        assert leak <= 1e-12, f"slots before step {changed} have a gradient of {leak:.2g} in the tokens from it on"


def gradient_reaches_every_parameter(build: Build, spec: TokenSpec = SPEC) -> None:
    """Law 3, first half: slots and own losses of a clip of a few steps depend on every trainable parameter."""
    core = _core(build, spec)
    core.train()
    output = _run(core, _tokens(spec, 2, 5))
    torch.stack([scalar(output.slots), *output.losses.values()]).sum().backward()
    dead = [name for name, parameter in _trainable(core) if parameter.grad is None or not parameter.grad.any()]
    assert not dead, f"no gradient reaches {', '.join(dead)}"
    broken = [n for n, p in _trainable(core) if p.grad is not None and not p.grad.isfinite().all()]
    assert not broken, f"the gradient of {', '.join(broken)} is not finite"


def smallest_sizes_are_finite(build: Build, dtype: torch.dtype = torch.float32) -> None:
    """Law 3, second half: one step, one token, one sample: outputs and gradients are finite.

    One slot, too, where `build` is a class that takes `num_slots`.
    """
    spec = TokenSpec(dim=12, num_tokens=1, grid=(1, 1))
    builds = [build]
    if inspect.isclass(build) and "num_slots" in inspect.signature(build).parameters:
        builds.append(partial(cast("Callable[..., TemporalCore]", build), num_slots=1))
    for smallest in builds:
        core, tokens = _core(smallest, spec, dtype), _tokens(spec, 1, 1, dtype).requires_grad_()
        slots = _run(core, tokens).slots
        assert slots.shape == (1, 1, core.slot_spec.num_slots, core.slot_spec.dim), f"slots of shape {slots.shape}"
        scalar(slots).backward()
        values = {"the slots": slots, "the gradient of the tokens": tokens.grad}
        values |= {f"the gradient of {name}": parameter.grad for name, parameter in _trainable(core)}
        broken = [name for name, value in values.items() if value is not None and not value.isfinite().all()]
        assert not broken, f"with {core.slot_spec.num_slots} slots, not finite: {', '.join(broken)}"


def permuting_slot_parameters_permutes_slots(build: Build, spec: TokenSpec = SPEC) -> None:
    """Law 4: permuting what the core declares as one row per slot permutes its slots, and changes nothing else."""
    core, tokens = _core(build, spec), _tokens(spec, 2, 5)
    declared = core.slot_parameters()
    assert declared, f"{type(core).__name__}.slot_parameters() declares nothing"
    permutation = torch.arange(core.slot_spec.num_slots).roll(1)
    with torch.no_grad():
        before = _run(core, tokens)
        for name, axis in declared.items():
            parameter = core.get_parameter(name)
            parameter.copy_(parameter.index_select(axis, permutation))
        after = _run(core, tokens)
    assert _largest((before.slots - before.slots[:, :, permutation]).abs()) > 1e-6, "all slots are the same"
    _assert_close(after.slots, before.slots[:, :, permutation], 1e-9, "slots after permuting the slot parameters")
    if before.attention is not None:
        assert after.attention is not None, "attention is gone after permuting"
        _assert_close(after.attention, before.attention[:, :, permutation], 1e-9, "attention after permuting")


def attention_sums_as_its_kind_says(build: Build, shapes: int = 4) -> None:
    """Attention is finite, not negative, and normalised by its `CoreOutput.attention_kind`, over random shapes.

    An assignment sums to 1 over the slots for each token; a reading sums to at most 1 over the tokens for each slot.
    """
    sizes = torch.Generator().manual_seed(0)

    def between(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=sizes))

    for index in range(shapes):
        # the first grid has more tokens than a small core has slots: no reading can pass for an assignment there
        rows, columns = (6, 6) if index == 0 else (between(1, 5), between(1, 5))
        spec = TokenSpec(between(4, 16), rows * columns, (rows, columns))
        batch, time = between(1, 3), between(1, 5)
        core = _core(build, spec)
        with torch.no_grad():
            output = _run(core, _tokens(spec, batch, time, seed=index))
        if output.attention is None:
            return
        attention, expected = output.attention, (batch, time, core.slot_spec.num_slots, spec.num_tokens)
        assert attention.shape == expected, f"attention has shape {tuple(attention.shape)}; expected {expected}"
        assert attention.isfinite().all(), "attention is not finite"
        assert attention.min() >= 0, f"attention has a weight of {attention.min().item():.3g}; none may be negative"
        if output.attention_kind == "assignment":
            error = (attention.sum(dim=2) - 1).abs().max().item()
            assert error <= 1e-6, f"attention of the kind 'assignment' sums over the slots to {error:.3g} from 1"
        else:
            total = attention.sum(dim=3).max().item()
            assert total <= 1 + 1e-6, f"attention of the kind 'reading' sums over the tokens to {total:.6g}, above 1"


def details_are_of_their_steps(build: Build, cuts: tuple[int, ...] = (1, 4), batch: int = 2, time: int = 7) -> None:
    """Every detail leads with batch and time, carries no gradient, and is the same if the clip comes in pieces."""
    core, tokens = _core(build, SPEC), _tokens(SPEC, batch, time)
    whole, pieces, state = _run(core, tokens).details, [], None
    for start, stop in zip((0, *cuts), (*cuts, time), strict=True):
        output = _run(core, tokens[:, start:stop], state)
        pieces.append(output.details)
        state = output.state
    for name, value in whole.items():
        shape, slots = tuple(value.shape), core.slot_spec.num_slots
        assert shape[:2] == (batch, time), f"details[{name!r}] has shape {shape}; expected ({batch}, {time}, ...)"
        assert name not in _OF_SLOTS or shape[2:3] == (slots,), f"details[{name!r}] has shape {shape} for {slots} slots"
        assert not value.requires_grad, f"details[{name!r}] carries a gradient"
        missing = [index for index, piece in enumerate(pieces) if name not in piece]
        assert not missing, f"details[{name!r}] is there for the whole clip and not for pieces {missing} of it"
        rebuilt = torch.cat([piece[name] for piece in pieces], dim=1)
        _assert_close(rebuilt, value, core.split_tolerance, f"details[{name!r}] of a clip cut at {cuts}")


def kernels_agree(build: Build, spec: TokenSpec = SPEC) -> None:
    """Law 5, first half: every kernel of its ops that runs here gives the slots and the gradients of the reference.

    The ops are those that the core's modules name in `kernel_op`, as `set_kernel` reads it.
    """
    core = _core(build, spec)
    outputs: dict[str, dict[str, Tensor]] = {}
    for kernel in _kernels(core):
        set_kernel(core, kernel)
        tokens = _tokens(spec, 2, 9).requires_grad_()
        core.zero_grad(set_to_none=True)
        slots = _run(core, tokens).slots
        scalar(slots).backward()
        assert tokens.grad is not None
        gradients = {name: parameter.grad for name, parameter in _trainable(core) if parameter.grad is not None}
        outputs[kernel] = {"slots": slots, "gradient of tokens": tokens.grad, **gradients}
    reference = outputs.pop("reference", {})
    for kernel, values in outputs.items():
        for name, value in values.items():
            _assert_close(value, reference[name], 1e-8, f"{name} under the kernel {kernel}")


def autocast_stays_close(build: Build, device: str = "cpu", spec: TokenSpec = SPEC) -> None:
    """Law 5, second half: bfloat16 autocast moves the slots by no more than promised; gradients stay finite."""
    core, tokens = _core(build, spec, torch.float32).to(device), _tokens(spec, 2, 8, torch.float32).to(device)
    with torch.no_grad():
        exact = _run(core, tokens).slots
    with torch.autocast(device, torch.bfloat16):
        slots = _run(core, tokens).slots
    error = ((slots.float() - exact).norm() / exact.norm()).item()
    assert error <= core.autocast_tolerance, f"under bfloat16 autocast the slots are {error:.3g} off"
    scalar(slots.float()).backward()
    broken = [n for n, p in _trainable(core) if p.grad is not None and not p.grad.isfinite().all()]
    assert not broken, f"under bfloat16 autocast the gradient of {', '.join(broken)} is not finite"


def checkpoint_reloads(build: Build, spec: TokenSpec = SPEC) -> None:
    """Law 6: a new core that loads the state dict, read back with `weights_only`, gives the same outputs to the bit."""
    core, tokens = _core(build, spec), _tokens(spec, 2, 5)
    stream = io.BytesIO()
    torch.save(core.state_dict(), stream)
    stream.seek(0)
    torch.manual_seed(1)
    fresh = build(spec).double().eval()
    fresh.load_state_dict(torch.load(stream, weights_only=True))
    with torch.no_grad():
        same = torch.equal(_run(fresh, tokens).slots, _run(core, tokens).slots)
    assert same, "a core that loads the checkpoint gives other slots: something that matters is not in the state dict"


def nothing_is_kept_on_the_module(build: Build, spec: TokenSpec = SPEC) -> None:
    """State contract: a call changes neither the module nor the state it was given; the next sees nothing of it."""
    core = _core(build, spec)
    core.train()
    first, second = _tokens(spec, 2, 5), _tokens(spec, 3, 4, seed=1)
    expected = _run(core, second).slots
    before = module_snapshot(core)
    state = _run(core, first).state
    unchanged(before, module_snapshot(core))
    given = map_state(torch.clone, state)
    _run(core, first, state)
    for leaf, copy in zip(_leaves(state), _leaves(given), strict=True):
        assert torch.equal(leaf, copy), "a call changed the state that it was given, in place"
    _assert_close(_run(core, second).slots, expected, 1e-12, "slots of a clip after another clip went through")


def samples_do_not_meet(build: Build, spec: TokenSpec = SPEC) -> None:
    """State contract: the batch leads every leaf of the state, and no sample depends on which others are there."""
    core, batch = _core(build, spec), 3
    first, second = _tokens(spec, batch, 4), _tokens(spec, batch, 3, seed=1)
    some = torch.tensor([2, 0])
    with torch.no_grad():
        state = _run(core, first).state
        for leaf in _leaves(state):
            shape = tuple(leaf.shape)
            assert shape[:1] == (batch,), f"a leaf of the state has shape {shape} where the batch is {batch}"
        everyone = _run(core, second, state).slots
        alone = _run(core, second[some], map_state(lambda leaf: leaf[some], state)).slots
    _assert_close(alone, everyone[some], 1e-9, "slots of samples taken out of the batch")


BUILT_FROM_A_SPEC: tuple[Callable[[Build], None], ...] = (
    splitting_carries_state,
    past_ignores_future,
    gradient_reaches_every_parameter,
    smallest_sizes_are_finite,
    attention_sums_as_its_kind_says,
    details_are_of_their_steps,
    kernels_agree,
    autocast_stays_close,
    checkpoint_reloads,
    nothing_is_kept_on_the_module,
    samples_do_not_meet,
)
"""The laws of any core; `permuting_slot_parameters_permutes_slots` is for those that declare such parameters."""


def _core(build: Build, spec: TokenSpec, dtype: torch.dtype = torch.float64) -> TemporalCore:
    torch.manual_seed(0)
    core = build(spec)
    move_off_initial_values(core)
    return core.to(dtype).eval()


def _run(core: TemporalCore, tokens: Tensor, state: State | None = None) -> CoreOutput:
    torch.manual_seed(0)
    return core(tokens, state)


def _tokens(spec: TokenSpec, batch: int, time: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, time, spec.num_tokens, spec.dim, generator=generator, dtype=torch.float64).to(dtype)


def _trainable(core: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in core.named_parameters() if parameter.requires_grad)


def _kernels(core: nn.Module) -> list[str]:
    """Kernels that run here, of every op that a module of the core lets one choose the kernel of, and "auto"."""
    modules = [module for module in core.modules() if isinstance(getattr(module, "kernel", None), str)]
    ops = dict.fromkeys(getattr(module, "kernel_op", "selective_scan") for module in modules)
    runs = {op: available_kernels(op) for op in ops}
    kernels = list(dict.fromkeys(name for op in ops for name in kernels_of_modules(op) if runs[op][name] is None))
    return [*kernels, "auto"] if kernels else []


def _leaves(state: State) -> list[Tensor]:
    leaves: list[Tensor] = []
    map_state(lambda leaf: leaves.append(leaf) or leaf, state)  # type: ignore[func-returns-value]
    return leaves


def _largest(x: Tensor) -> float:
    return x.max().item() if x.numel() else 0.0


def _assert_close(value: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    torch.testing.assert_close(
        value, expected, rtol=tolerance, atol=tolerance, msg=lambda message: f"{what} differ.\n{message}"
    )


def _assert_states_close(state: State, expected: State, tolerance: float) -> None:
    for leaf, other in zip(_leaves(state), _leaves(expected), strict=True):
        _assert_close(leaf, other, tolerance, "states after the last step")
