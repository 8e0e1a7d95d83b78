"""What the first step of a training finds out about its core: whether it keeps the laws that tasks rely on."""

from __future__ import annotations

from copy import deepcopy

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
    try:
        copy = deepcopy(core).eval()
    except Exception:  # of what cannot be copied nothing is known
        return
    dtype = next((parameter.dtype for parameter in core.parameters()), tokens.dtype)
    piece = tokens[:_CLIPS, :_STEPS].to(dtype)
    first = map_state(lambda leaf: leaf[:_CLIPS].to(dtype if leaf.is_floating_point() else leaf.dtype), state)
    with isolate_rng(), drawn_by_clip(range(len(piece))), torch.autocast(tokens.device.type, enabled=False):
        broken = _broken(copy, piece, first)
    if broken:
        rank_zero_warn(
            f"the core {type(core).__name__} breaks laws that tasks rely on: {'; '.join(broken)}; "
            "the laws are in slotbench.testing.laws"
        )


def _broken(core: TemporalCore, tokens: Tensor, state: State | None) -> list[str]:
    """The laws that the core breaks, in words; none of a core that cannot read so few frames, whose step says why."""
    # drawn here, so that every call below begins with the same random state
    other = torch.cat([tokens[:, :-1], tokens[:, -1:] + torch.randn_like(tokens[:, -1:])], dim=1)
    before = _kept(core)
    try:
        whole = _slots(core, tokens, state)
        again = _slots(core, tokens, state)
    except Exception:
        return []
    if _differ(again, whole, _SAME):
        kept = [name for name, held in _kept(core).items() if not _equal(held, before.get(name, []))]
        if kept:
            raise PartError(
                f"the core {type(core).__name__} keeps {' and '.join(kept)} on itself, so that clips go on from those "
                "before: return it as the state, and read it from the state that is given"
            )
        return ["the same clip gives other slots the second time (nothing_is_kept_on_the_module)"]
    if not getattr(core, "causal", True) or tokens.shape[1] == 1:
        return []
    broken = []
    if _differ(_slots(core, other, state)[:, :-1], whole[:, :-1], _SAME):
        broken.append("the last frame changes earlier slots (past_ignores_future; if it may, set causal = False)")
    if (found := _cut(core, tokens, other, state, whole)) is not None:
        broken.append(f"a clip cut in two, its state carried, {found} (splitting_carries_state)")
    return broken


def _cut(core: TemporalCore, tokens: Tensor, other: Tensor, state: State | None, whole: Tensor) -> str | None:
    """What is wrong with the slots of a clip in two pieces, between which another clip is read."""
    pieces = tokens.tensor_split([tokens.shape[1] // 2], dim=1)
    try:
        with isolate_rng():
            early = core(pieces[0], state)
            _slots(core, other, state)
            drawn = _random_state(tokens.device)
            late = core(pieces[1], early.state)
            # samples of a piece are not those of the whole
            if not torch.equal(drawn, _random_state(tokens.device)):
                return None
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    return "gives other slots" if _differ(torch.cat([early.slots, late.slots], dim=1), whole, _REGROUPED) else None


def _slots(core: TemporalCore, tokens: Tensor, state: State | None) -> Tensor:
    with isolate_rng():
        return core(tokens, state).slots


def _differ(slots: Tensor, expected: Tensor, tolerance: float) -> bool:
    if torch.finfo(expected.dtype).bits < 32:
        tolerance = TemporalCore.autocast_tolerance
    return bool((slots - expected).abs().max() > tolerance * expected.abs().max())


def _equal(tensors: list[Tensor], others: list[Tensor]) -> bool:
    return len(tensors) == len(others) and all(map(torch.equal, tensors, others))


def _random_state(device: torch.device) -> Tensor:
    of_device = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return torch.cat([torch.get_rng_state(), *of_device])


def _kept(core: nn.Module) -> dict[str, list[Tensor]]:
    """Copies of the tensors that modules hold beside their parameters, by the names of the attributes."""
    found: dict[str, list[Tensor]] = {}
    for prefix, module in core.named_modules():
        held = {name: value for name, value in vars(module).items() if name not in ("_parameters", "_buffers")}
        for name, value in (held | module._buffers).items():
            leaves = found.setdefault(f"{prefix}.{name}".lstrip("."), [])
            map_state(lambda leaf, leaves=leaves: leaves.append(leaf.clone()), value)  # type: ignore[misc]
    return found
