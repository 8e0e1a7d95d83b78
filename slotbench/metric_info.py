"""What a metric is: its label, direction, unit, scope, masks, and of which score it is a baseline or an oracle.

A metric's class or its `Scores` declares this once, by the name of the score; the run writes it beside its rows for
every name that it logs; tables, pages and reports look it up. Runs that were written before have no such record:
`legacy_info` reads what their names say, and is the only place that does.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal

from slotbench.errors import FileError
from slotbench.records import as_record

__all__ = [
    "MASKS",
    "ONCE_AMONG_BASELINES",
    "REFERENCES",
    "MetricInfo",
    "arrow",
    "describe",
    "info_of",
    "infos_as_record",
    "infos_from_record",
    "is_reference",
    "legacy_direction",
    "legacy_info",
    "legacy_reference",
    "reference_of",
    "score_beside",
    "score_text",
    "without_stage",
]

Reference = Literal["", "baseline", "oracle"]

MASKS = ("decoder", "attention", "mask_decoder")
"""Whose masks a score may be of."""

REFERENCES = ("val/baseline/", "val/oracle/", "val/floor/")
"""How the logged scores of baselines and of oracles begin, the last those of version 0.1."""

_SCOPES = {"video": "per video", "frame": "per frame", "step": "per step", "scene": "per scene"}
_STAGE = re.compile(r"(?:val|test|train|lengths/\d{1,4}T)/")


@dataclass(frozen=True)
class MetricInfo:
    """What a logged number is.

    Attributes:
        name: as logged, without the stage: "fg_ari/video/decoder"; of a declaration the name of the score: "fg_ari".
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
    reference: Reference = ""
    of: str = ""
    by: str = ""

    @property
    def without_masks(self) -> str:
        """Name of the score without its masks, under which baselines are logged."""
        return self.name.removesuffix(f"/{self.masks}") if self.masks else self.name


def describe(names: Iterable[str], declared: Iterable[MetricInfo]) -> dict[str, MetricInfo]:
    """What each logged name is, by the declarations of the scores.

    Args:
        names: as logged, without the stage: a declared name, then parts such as a scope, masks or a step, or
            "baseline/" or "oracle/" with the name of a score among which stands the reference's own.
        declared: by the names of scores; the longest one that a name begins with counts. Of one name the last counts.

    Returns:
        Those of the names that a declaration covers.

    Example:
        >>> found = describe(["miou/video/decoder", "baseline/miou/video/grid"], [MetricInfo("miou", "mIoU", True)])
        >>> found["miou/video/decoder"].label, found["baseline/miou/video/grid"].of
        ('mIoU per video, decoder', 'miou/video')
    """
    known = {one.name: one for one in declared}
    listed = list(names)
    scores = {name: _score(name, known) for name in listed if not name.startswith(("baseline/", "oracle/"))}
    found = {name: info for name, info in scores.items() if info is not None}
    beside = {info.without_masks: info for info in found.values()}
    for name in listed:
        kind, _, rest = name.partition("/")
        if kind in ("baseline", "oracle") and (of := _score_of(rest, beside)) is not None:
            found[name] = replace(beside[of[0]], name=name, masks="", reference=kind, of=of[0], by=of[1])  # type: ignore[arg-type]
    return found


def _score(name: str, known: Mapping[str, MetricInfo]) -> MetricInfo | None:
    parts = name.split("/")
    for count in range(len(parts), 0, -1):
        declared = known.get("/".join(parts[:count]))
        if declared is not None:
            rest = parts[count:]
            masks = rest.pop() if rest and rest[-1] in MASKS else declared.masks
            scope = rest.pop(0) if rest and rest[0] in _SCOPES else declared.scope
            label = declared.label or declared.name
            label += f" {_SCOPES[scope]}" if scope and not declared.scope else ""
            label += "".join(f", {part.replace('_', ' ')}" for part in (*rest, *([masks] * (masks != declared.masks))))
            return replace(declared, name=name, label=label, scope=scope, masks=masks)
    return None


def _score_of(reference: str, scores: Collection[str]) -> tuple[str, str] | None:
    """The score that "miou/video/grid" is a reference of, and the reference's own name: any part but the first."""
    parts = reference.split("/")
    for index in range(len(parts) - 1, 0, -1):
        score = "/".join(parts[:index] + parts[index + 1 :])
        if score in scores:
            return score, parts[index]
    return None


def without_stage(logged: str) -> str:
    """A logged name without "val/", "test/", "train/" or "lengths/4T/"."""
    match = _STAGE.match(logged)
    return logged[match.end() :] if match else logged


def arrow(info: MetricInfo) -> str:
    """ "↑" where higher is better, "↓" where lower is, else nothing."""
    return {True: "↑", False: "↓", None: ""}[info.higher_is_better]


def is_reference(logged: str) -> bool:
    """Whether a logged name is that of a baseline or of an oracle."""
    return logged.startswith(REFERENCES)


def info_of(logged: str, known: Mapping[str, MetricInfo]) -> MetricInfo:
    """Declaration of a logged number: the run's own, or else what its name tells.

    Args:
        logged: with its stage, such as "val/loss".
        known: the run's own declarations, by name without the stage.
    """
    return known.get(without_stage(logged)) or legacy_info(logged)


def score_beside(logged: str, known: Mapping[str, MetricInfo]) -> str:
    """The name by which baselines and oracles of a logged score are known: without the stage and the masks.

    Of clips of several lengths it keeps the length, "lengths/4T/mota", by which baselines differ.

    Args:
        logged: such as "val/miou/video/decoder".
        known: the run's own declarations, by name without the stage.
    """
    info = info_of(logged, known)
    kept = logged.removesuffix(without_stage(logged)) if logged.startswith("lengths/") else ""
    return f"{kept}{info.without_masks if info.name == without_stage(logged) else without_stage(logged)}"


def reference_of(logged: str, score: str, known: Mapping[str, MetricInfo]) -> tuple[Reference, str] | None:
    """The kind and the name of a logged baseline or oracle, if it is one of the score's.

    Args:
        logged: of any score, such as "val/baseline/mse/black".
        score: as `score_beside` names it.
        known: what the run has written, by name without the stage.
    """
    if not is_reference(logged):
        return None
    info = known.get(without_stage(logged))
    if info is None:
        return legacy_reference(logged, score)
    return (info.reference, info.by) if info.of == score else None


def infos_as_record(infos: Mapping[str, MetricInfo]) -> dict[str, dict[str, Any]]:
    """As plain data, what is empty left out."""
    kept = [field for field in fields(MetricInfo) if field.default is not MISSING]
    return {
        name: {field.name: value for field in kept if (value := getattr(info, field.name)) != field.default}
        for name, info in infos.items()
    }


def infos_from_record(record: Any) -> dict[str, MetricInfo]:
    """The infos of a record of any origin: entries of wrong types are left out."""
    found = {}
    for name, given in record.items() if isinstance(record, Mapping) else ():
        with contextlib.suppress(FileError):
            found[name] = as_record({**given, "name": name} if isinstance(given, Mapping) else given, MetricInfo, name)
    return found


# --- runs written before


_LOWER = frozenset(
    {"loss", "mse", "bce", "nll", "rmse", "rel", "lpips", "fvd", "error", "switches", "misses", "milliseconds"}
)
_HIGHER = frozenset({"accuracy", "iou", "miou", "ari", "mbo", "psnr", "ssim", "r2", "mota", "motp", "ahead"})
ONCE_AMONG_BASELINES = frozenset({"generator, last two frames", "constant velocity", "constant velocity, walls"})
"""Oracles that runs of version 0.1 have logged as baselines, under `<stage>/floor/`."""


def legacy_direction(name: str) -> bool | None:
    """Whether more of it is better, by the words of its name; None if they do not say, or say both.

    For runs without a record of their metrics, and for a grid that no run has been made of.

    >>> legacy_direction("val/rollout_mse/first_8"), legacy_direction("val/fg_ari/video"), legacy_direction("val/depth")
    (False, True, None)
    """
    words = set(re.split(r"[/_\W]+", name.lower()))
    directions = {False} if words & _LOWER else set()
    directions |= {True} if words & _HIGHER else set()
    return directions.pop() if len(directions) == 1 else None


def legacy_info(logged: str) -> MetricInfo:
    """Declaration guessed from the name of a score: direction by its words, masks by its end."""
    name = without_stage(logged)
    masks = name.rpartition("/")[2]
    masks = masks if masks in MASKS and "/" in name else ""
    return MetricInfo(name, logged.removeprefix("val/"), legacy_direction(logged), masks=masks)


def legacy_reference(logged: str, score: str) -> tuple[Reference, str] | None:
    """The kind and the name of a baseline or an oracle, "val/baseline/mse/black", if it is one of the score's.

    Its name has one part more than the score's, anywhere but in front. Version 0.1 logged oracles as baselines, under
    `val/floor/`.

    Args:
        logged: of the reference.
        score: without stage and masks.
    """
    found = _score_of(without_stage(logged).partition("/")[2], (score,))
    if found is None:
        return None
    is_oracle = logged.startswith("val/oracle/") or found[1] in ONCE_AMONG_BASELINES
    return ("oracle" if is_oracle else "baseline"), found[1]


def score_text(value: float) -> str:
    """A score as text: three decimals, or as many digits where a small error would show as nothing."""
    return f"{value:.3g}" if 0 < abs(value) < 0.0995 else f"{value:.3f}"
