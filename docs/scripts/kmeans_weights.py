"""Scores k-means on the validation clips of MOViLike over the weight of a pixel's place beside its colour.

    python docs/scripts/kmeans_weights.py [--out docs/scripts/kmeans_weights.json]

The clips are those of experiments/grids/studies/movi_like.yaml, in as many clusters as its models have slots. What a
single weight scores depends much on the weight: models stand beside the whole curve in docs/results/objects.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

WEIGHTS = (0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
CLUSTERS = 9


def main() -> int:
    """Writes the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    import yaml

    from slotbench.data.base import LoaderOptions
    from slotbench.metrics.segmentation import ARI, FGARI, MatchedIoU
    from slotbench.metrics.segmentation_baselines import kmeans_labels
    from slotbench.registry import load

    experiment = Path(__file__).parents[2] / "experiments" / "movi_like.yaml"
    arguments = yaml.safe_load(experiment.read_text(encoding="utf-8"))["data"]["init_args"]
    data = load("datasets", "MOViLike")(**arguments | {"loader": LoaderOptions(**arguments["loader"])})
    torch.set_num_threads(1)
    data.setup("validate")
    batches = list(data.val_dataloader())
    scores: dict[str, dict[str, float]] = {}
    for weight in WEIGHTS:
        metrics = {"fg_ari": FGARI(), "miou": MatchedIoU(), "ari": ARI()}
        for batch in batches:
            labels = kmeans_labels(batch.pixels, CLUSTERS, weight)
            for metric in metrics.values():
                metric.update(labels, batch.masks)
        scores[str(weight)] = {name: round(float(metric.compute()), 4) for name, metric in metrics.items()}
        print(weight, scores[str(weight)])
    clips = sum(len(batch.frames) for batch in batches)
    args.out.write_text(json.dumps({"clusters": CLUSTERS, "clips": clips, "scores": scores}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
