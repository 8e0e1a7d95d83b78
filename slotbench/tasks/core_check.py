"""What the first step of a training finds out about its core: whether it keeps the laws that tasks rely on."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn

from slotbench.interfaces import PartError, State, TemporalCore, map_state
from slotbench.nn.slot_init import drawn_by_clip

__all__ = ["check_laws"]

_CLIPS, _STEPS = 2, 4
# of the largest slot: by calls of one shape, and by calls of several, whose sums are in another order
_SAME, _REGROUPED = 1e-4, 1e-2


@torch.no_grad()
def check_laws(core: TemporalCore, tokens: Tensor, state: State | None = None) -> None:
    """Warns, once, of the laws that a core breaks on the first frames of two clips; the core itself is not called.

    Raises:
        PartError: the core goes on from tensors that it has kept on itself.
    """
    dtype = next((weight.dtype for weight in core.parameters() if weight.is_floating_point()), tokens.dtype)
    piece = tokens[:_CLIPS, :_STEPS].to(dtype)
    with isolate_rng(), drawn_by_clip(range(len(piece))), torch.autocast(tokens.device.type, enabled=False):
        try:
            first = map_state(lambda leaf: leaf[:_CLIPS].to(dtype if leaf.is_floating_point() else leaf.dtype), state)
            broken = _broken(deepcopy(core).eval(), piece, first)
        except PartError:
            raise
        except Exception:  # it cannot be copied, or reads no such piece: the step says so, if it is at fault
            return
    if broken:
        rank_zero_warn(
            f"the core {type(core).__name__} breaks laws that tasks rely on: {'; '.join(broken)}; "
            "the laws are in slotbench.testing.laws"
        )


def _broken(core: TemporalCore, tokens: Tensor, state: State | None) -> list[str]:
    """The laws that the core breaks, in words."""
    # drawn here, so that every call below begins with the same random state
    other = torch.cat([tokens[:, :-1], tokens[:, -1:] + torch.randn_like(tokens[:, -1:])], dim=1)
    before = _held(core)
    whole = _slots(core, tokens, state)
    if _differ(_slots(core, tokens, state), whole, _SAME):
        kept = [name for name, values in _held(core).items() if values != before.get(name, [])]
        if not kept:
            return ["the same clip gives other slots the second time (nothing_is_kept_on_the_module)"]
        raise PartError(
            f"the core {type(core).__name__} keeps {' and '.join(kept)} on itself, so that clips go on from those "
            "before: return it as the state, and read it from the state that is given"
        )
    if not getattr(core, "causal", True) or tokens.shape[1] == 1:
        return []
    broken = []
    if _differ(_slots(core, other, state)[:, :-1], whole[:, :-1], _SAME):
        broken.append("the last frame changes earlier slots (past_ignores_future; if it may, set causal = False)")
    if found := _cut(core, tokens, other, state, whole):
        broken.append(f"a clip cut in two, its state carried, {found} (splitting_carries_state)")
    return broken


def _cut(core: TemporalCore, tokens: Tensor, other: Tensor, state: State | None, whole: Tensor) -> str | None:
    """What is wrong with the slots of a clip in two pieces, between which another clip is read."""
    early, late = tokens.tensor_split([tokens.shape[1] // 2], dim=1)
    try:
        with isolate_rng():
            first = core(early, state)
            _slots(core, other, state)
            drawn = _random_state()
            slots = torch.cat([first.slots, core(late, first.state).slots], dim=1)
            if not torch.equal(drawn, _random_state()):
                return None  # samples of a piece are not those of the whole
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    return "gives other slots" if _differ(slots, whole, _REGROUPED) else None


def _slots(core: TemporalCore, tokens: Tensor, state: State | None) -> Tensor:
    with isolate_rng():
        return core(tokens, state).slots


def _differ(slots: Tensor, expected: Tensor, tolerance: float) -> bool:
    tolerance = max(tolerance, 8 * torch.finfo(expected.dtype).eps)
    return bool((slots - expected).abs().max() > tolerance * expected.abs().max())


def _random_state() -> Tensor:
    return torch.cat([torch.get_rng_state(), *torch.cuda.get_rng_state_all()])


def _held(core: nn.Module) -> dict[str, list[Any]]:
    """Values of the tensors that modules hold beside their parameters, by the names of the attributes."""
    return {
        f"{prefix}.{name}".lstrip("."): _values(value)
        for prefix, module in core.named_modules()
        for name, value in (vars(module) | module._buffers).items()
        if name not in ("_parameters", "_buffers")
    }


def _values(held: Any) -> list[Any]:
    if isinstance(held, Tensor):
        return [held.tolist()]
    inside = held.values() if isinstance(held, dict) else held if isinstance(held, list | tuple) else ()
    return [value for one in inside for value in _values(one)]
