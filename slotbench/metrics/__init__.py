"""Metrics, by name: `from slotbench.metrics import FGARI`.

Importing the package imports no module, and so no torch: a name does, when it is asked for.
"""

from __future__ import annotations

from slotbench.lazy import lazy_names

_MODULES = {
    "balls": ("BallAccuracy", "BallIoU", "BallScores"),
    "clip_scores": ("ClipScores", "score_clip", "score_clips", "summaries"),
    "colour_tracker": ("colour_tracker_labels", "simple_trackers"),
    # its function `contingency` would have the name of the module
    "contingency": ("frame_tables", "masks_to_labels"),
    "depth.errors": ("DepthErrors",),
    "depth.floor": ("floor_depth",),
    "depth.scores": ("DepthScores",),
    "discovery_scores": ("DiscoveryScores",),
    "frames": ("FrameMetric", "frame_mse", "frame_psnr", "frame_ssim", "frame_sum_mse"),
    "fvd": ("FVD", "GroupMeans", "frechet_distance"),
    "hota": ("Hota", "hota_counts"),
    "label_scores": ("LabelCounts", "LabelScores", "grid_distances", "ranks_of"),
    "linked_segments": ("linked_labels",),
    "lpips": ("LPIPS",),
    "mask_rules": ("Rules",),
    "means": ("Mean",),
    "objects.cell_identity": (
        *("CellIdentity", "consistency", "objects_of_cells", "shift_correlation", "shuffled_in_time"),
    ),
    "objects.clear_mot": ("ClearMOT", "track_labels"),
    "objects.foreground": ("ForegroundF1", "soft_counts", "soft_f1"),
    "objects.utilisation": ("cell_utilisation",),
    "region_similarity": ("RegionSimilarity",),
    "scores": ("Score", "Scores"),
    "segmentation": (
        *("ARI", "FGARI", "MatchedIoU", "MeanBestOverlap", "SegmentationMetric"),
        *("adjusted_rand_index", "matched_iou", "mean_best_overlap", "pairwise_iou"),
    ),
    "segmentation_baselines": ("feature_segmentations", "kmeans_stream_labels", "simple_segmentations"),
    "slot_occupancy": ("SlotOccupancy", "slot_shares"),
    "tracking": ("Tracking", "TrackingRule", "half_life", "track"),
    "usage": ("ChoiceUsage", "usage_entropy"),
    "view_scores": ("NovelViewScores", "foreground_psnr"),
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
