"""What a logged number is: label, direction, unit, scope and masks, and of which score it is a baseline or an oracle.

A metric declares this once, by its name. A run writes it to `run.json` for every name that it logs, and whatever shows
scores looks it up there (`info_of`, `references_of`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

__all__ = [
    "MASKS",
    "MetricInfo",
    "Reference",
    "References",
    "arrow",
    "describe",
    "direction_by_words",
    "info_of",
    "infos_as_record",
    "infos_from_record",
    "is_reference",
    "references_of",
    "score_text",
    "without_stage",
]

Kind = Literal["", "baseline", "oracle"]

MASKS = ("decoder", "attention", "mask_decoder")
"""Whose masks a score may be of."""

_SCOPES = {"video": "per video", "frame": "per frame", "step": "per step", "scene": "per scene"}
_STAGE = re.compile(r"(?:val|test(?:@[^/]*)?|train|probe|lengths/\d+T)/")
_LOWER = frozenset({"loss", "mse", "bce", "nll", "rmse", "lpips", "fvd", "error", "switches", "misses", "milliseconds"})
_HIGHER = frozenset({"accuracy", "iou", "miou", "ari", "mbo", "psnr", "ssim", "r2", "mota", "motp", "ahead"})


class Reference(str):
    """Logged name of what a baseline or an oracle scores, with the score that it stands beside.

    `of` is the score without masks ("miou/video"), `by` the reference's own name ("one slot"), `logged` the name where
    it is not "<kind>/<of>/<by>".
    """

    kind: Kind
    of: str
    by: str

    def __new__(cls, kind: Kind, of: str, by: str, logged: str = "") -> Reference:
        """A name with its parts."""
        self = super().__new__(cls, logged or f"{kind}/{of}/{by}")
        self.kind, self.of, self.by = kind, of, by
        return self

    def __getnewargs__(self) -> tuple[Kind, str, str, str]:  # type: ignore[override]
        return self.kind, self.of, self.by, str(self)


class References(NamedTuple):
    """Scores of baselines, and those of oracles, by their names."""

    baselines: dict[str, float]
    oracles: dict[str, float]


@dataclass(frozen=True)
class MetricInfo:
    """What a logged number is.

    Attributes:
        name: as logged, without the stage: "fg_ari/video/decoder"; of a declaration that of the metric: "fg_ari".
        label: what it is, in a few words.
        higher_is_better: the direction; None where neither is better.
        unit: such as "dB".
        scope: "video" or "frame", of a score of masks.
        masks: whose, "decoder", "attention" or "mask_decoder".
        reference: "baseline" (learns nothing) or "oracle" (knows the simulator); empty for a score.
        of: of a reference, the score that it is compared with, without the masks.
        by: of a reference, its own name, such as "one slot".
    """

    name: str
    label: str = ""
    higher_is_better: bool | None = None
    unit: str = ""
    scope: str = ""
    masks: str = ""
    reference: Kind = ""
    of: str = ""
    by: str = ""

    @property
    def without_masks(self) -> str:
        """Name of the score without its masks, under which baselines are logged."""
        return self.name.removesuffix(f"/{self.masks}") if self.masks else self.name


def describe(names: Iterable[str], declared: Iterable[MetricInfo]) -> dict[str, MetricInfo]:
    """What each logged name is, by the declarations of the metrics; names that none covers are left out.

    Names are without the stage: a declared one, alone or with "/" and parts such as a scope, masks or a step behind it,
    or a `Reference`.

    Example:
        >>> baseline = Reference("baseline", "miou/video", "grid")
        >>> found = describe(["miou/video/decoder", baseline], [MetricInfo("miou", "mIoU", True)])
        >>> found["miou/video/decoder"].label, found[baseline].of
        ('mIoU per video, decoder', 'miou/video')
    """
    known = {one.name: one for one in declared}
    found = {}
    for name in names:
        own = _described(name.of if isinstance(name, Reference) else name, known)
        if own is not None and isinstance(name, Reference):
            own = replace(own, name=str(name), masks="", reference=name.kind, of=name.of, by=name.by)
        if own is not None:
            found[str(name)] = own
    return found


def _described(name: str, known: Mapping[str, MetricInfo]) -> MetricInfo | None:
    metric, *rest = name.split("/")
    if (declared := known.get(name)) is not None:
        rest = []
    elif (declared := known.get(metric)) is None:
        return None
    masks = rest.pop() if rest and rest[-1] in MASKS else declared.masks
    scope = rest.pop(0) if rest and rest[0] in _SCOPES else declared.scope
    label = declared.label or declared.name
    label += f" {_SCOPES[scope]}" if scope and not declared.scope else ""
    label += "".join(f", {part.replace('_', ' ')}" for part in (*rest, *([masks] * (masks != declared.masks))))
    return replace(declared, name=name, label=label, scope=scope, masks=masks)


def without_stage(logged: str) -> str:
    """A logged name without "val/", "test/", "train/", "probe/" or "lengths/4T/"."""
    match = _STAGE.match(logged)
    return logged[match.end() :] if match else logged


def is_reference(logged: str) -> bool:
    """Whether a logged name, with or without its stage, is that of a baseline or of an oracle."""
    return without_stage(logged).startswith(("baseline/", "oracle/"))


def info_of(logged: str, known: Mapping[str, MetricInfo]) -> MetricInfo:
    """What a logged number is, by what the run has written; of others the direction is guessed from the name."""
    name = without_stage(logged)
    return known.get(name) or MetricInfo(name, logged.removeprefix("val/"), direction_by_words(name))


def references_of(logged: str, scores: Mapping[str, float], known: Mapping[str, MetricInfo]) -> References:
    """What baselines and oracles of a score have, those of its own stage or else of the validation.

    The score is named with its stage; `scores` is everything that the run has logged, `known` what it says of names.
    """
    name = info_of(logged, known).without_masks
    own = logged.removesuffix(without_stage(logged))
    found = References({}, {})
    for stage in dict.fromkeys((own, "val/")):
        for info in known.values():
            value = scores.get(f"{stage}{info.name}") if info.reference and info.of == name else None
            if value is not None:
                (found.oracles if info.reference == "oracle" else found.baselines).setdefault(info.by, value)
    return found


def infos_as_record(infos: Mapping[str, MetricInfo]) -> dict[str, dict[str, Any]]:
    """As plain data, what is empty left out."""
    empty = asdict(MetricInfo(""))
    return {
        name: {key: value for key, value in asdict(info).items() if key != "name" and value != empty[key]}
        for name, info in infos.items()
    }


def infos_from_record(record: Mapping[str, Mapping[str, Any]] | None) -> dict[str, MetricInfo]:
    """What `infos_as_record` has written, such as the `metric_infos` of `run.json`."""
    return {name: MetricInfo(name, **given) for name, given in (record or {}).items()}


def direction_by_words(name: str) -> bool | None:
    """Whether more of it is better, by the words of a name; None if they do not say, or say both.

    >>> direction_by_words("rollout_mse/first_8"), direction_by_words("fg_ari/video"), direction_by_words("depth")
    (False, True, None)
    """
    words = set(re.split(r"[/_\W]+", name.lower()))
    directions = [direction for direction, known in ((False, _LOWER), (True, _HIGHER)) if words & known]
    return directions[0] if len(directions) == 1 else None


def arrow(info: MetricInfo) -> str:
    """ "↑" where higher is better, "↓" where lower is, else nothing."""
    return {True: "↑", False: "↓", None: ""}[info.higher_is_better]


def score_text(value: float) -> str:
    """A score as text: three decimals, or as many digits where a small error would show as nothing."""
    return f"{value:.3g}" if 0 < abs(value) < 0.0995 else f"{value:.3f}"
