"""How published numbers are computed: the rules of eight projects, and what one set of masks scores under each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slotbench.metrics.mask_rules import Rules

__all__ = ["CONVENTIONS", "Convention", "under"]


@dataclass(frozen=True)
class Convention:
    """How one project scores: what differs from the usual rules, and what it publishes, by heading and our name.

    Attributes:
        data: what it does to videos before, as arguments of their reader.
    """

    name: str
    rules: Mapping[str, object]
    scores: Mapping[str, str]
    summary: str
    source: str
    data: Mapping[str, object] = field(default_factory=dict)


CONVENTIONS = (
    Convention(
        "SAVi, repository",
        {},
        {"FG-ARI": "fg_ari/video"},
        "per video, all frames",
        "google-research/slot-attention-video, savi/lib/metrics.py and README",
    ),
    Convention(
        "SAVi, paper",
        {"skip": 1},
        {"FG-ARI": "fg_ari/video"},
        "per video, without the first frame, in which slots are given the objects",
        "Kipf et al., Conditional object-centric learning from video, 2022",
    ),
    Convention(
        "STEVE, PSB",
        {"window": 6, "resize": "nearest"},
        {"FG-ARI": "fg_ari/video"},
        "per piece of 6 frames, pieces one after the other; attention enlarged by repetition",
        "singhgautam/steve, branch evaluate; PSB, appendix B.4",
    ),
    Convention(
        "VideoSAUR, images",
        {},
        {"FG-ARI": "fg_ari/frame", "mIoU": "miou/frame", "mBO": "mbo/frame"},
        "per frame; a frame without objects is 1 in FG-ARI, and left out of IoUs",
        "martius-lab/videosaur, videosaur/metrics.py, ImageARI and ImageIoU",
    ),
    Convention(
        "VideoSAUR, YouTube-VIS",
        {"window": 6, "empty": "skip"},
        {"FG-ARI": "fg_ari/video", "mBO": "mbo/video"},
        "per piece of 6 frames; pieces without objects are left out",
        "martius-lab/videosaur, configs/videosaur/ytvis.yml, videosaur/metrics.py",
        {"fit": "crop", "resolution": 224, "eval_frames": 6, "first_videos": 200},
    ),
    Convention(
        "SlotContrast, YouTube-VIS",
        {"empty": "skip"},
        {"FG-ARI": "fg_ari/video", "mBO": "mbo/video"},
        "per whole video; videos without objects are left out",
        "martius-lab/slotcontrast, configs/slotcontrast/ytvis2021.yaml and issue 6",
        {"fit": "crop", "resolution": 518, "eval_frames": None, "first_videos": 210},
    ),
    Convention(
        "DAVIS, unsupervised",
        {},
        {"J": "jaccard/video"},
        "per whole video; mean over the objects of all videos",
        "davisvideochallenge/davis2017-evaluation, davis2017/evaluation.py",
        {"void": "background"},
    ),
    Convention(
        "SlotFormer",
        {"absent": "zero"},
        {"FG-ARI": "fg_ari/frame", "ARI": "ari/frame", "mIoU": "miou/frame"},
        "per frame; ids below the highest one of a frame that are absent count 0 in mIoU",
        "pairlab/SlotFormer, slotformer/video_prediction/vp_utils.py, fb1c39b",
    ),
    Convention(
        "ClevrTex",
        {},
        {
            "FG-ARI": "fg_ari/frame",
            "ARI": "ari/frame",
            "mIoU": "miou_of_pairs/frame",
            "mIoU_gt": "miou_with_background/frame",
        },
        "per image, the background an object; mIoU is over all pairs, surplus slots among them",
        "karazijal/clevrtex-generation, clevrtex_eval.py",
    ),
)


# what data and masks decide
_KEPT = ("first", "background", "void", "resolution", "resize", "uncovered")


def under(rules: Rules, convention: Convention) -> Rules:
    """The rules of a convention, with what it leaves to the data and the masks (ids, sizes, frames) as it was given."""
    kept = {name: getattr(rules, name) for name in _KEPT}
    return replace(Rules(**kept), **convention.rules)  # type: ignore[arg-type]
