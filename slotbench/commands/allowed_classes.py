"""The classes of torch, lightning and slotbench that a configuration may name, beside registered components.

A class is listed if building it, and what Lightning then does with it, runs no program, reaches no network and writes
no file but those that `written_paths` keeps inside the run folder. Whoever needs another types `--allow-import`.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["WRITTEN_ARGUMENTS", "named_classes"]

_NAMED = {
    "torch.optim": (
        "ASGD",
        "Adadelta",
        "Adafactor",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "LBFGS",
        "Muon",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
        "SparseAdam",
    ),
    "torch.optim.lr_scheduler": (
        "ConstantLR",
        "CosineAnnealingLR",
        "CosineAnnealingWarmRestarts",
        "CyclicLR",
        "ExponentialLR",
        "LinearLR",
        "MultiStepLR",
        "OneCycleLR",
        "PolynomialLR",
        "ReduceLROnPlateau",
        "StepLR",
    ),
    "lightning.pytorch.callbacks": (
        "BackboneFinetuning",
        "BatchSizeFinder",
        "DeviceStatsMonitor",
        "EMAWeightAveraging",
        "EarlyStopping",
        "GradientAccumulationScheduler",
        "LearningRateFinder",
        "LearningRateMonitor",
        "ModelCheckpoint",
        "ModelSummary",
        "OnExceptionCheckpoint",
        "RichModelSummary",
        "RichProgressBar",
        "StochasticWeightAveraging",
        "TQDMProgressBar",
        "Timer",
        "WeightAveraging",
    ),
    "lightning.pytorch.callbacks.progress.rich_progress": ("RichProgressBarTheme",),
    "lightning.pytorch.loggers": ("CSVLogger", "TensorBoardLogger"),
    "lightning.pytorch.profilers": ("AdvancedProfiler", "PassThroughProfiler", "PyTorchProfiler", "SimpleProfiler"),
    "lightning.pytorch.accelerators": ("CPUAccelerator", "CUDAAccelerator", "MPSAccelerator"),
    "lightning.pytorch.strategies": ("DDPStrategy", "SingleDeviceStrategy"),
    "lightning.pytorch.plugins": (
        "BitsandbytesPrecision",
        "DoublePrecision",
        "FSDPPrecision",
        "HalfPrecision",
        "MixedPrecision",
        "TorchSyncBatchNorm",
        "TransformerEnginePrecision",
    ),
    "lightning.fabric.plugins.environments": ("LightningEnvironment", "TorchElasticEnvironment"),
    # what Lightning's command line calls torch's
    "lightning.pytorch.cli": ("ReduceLROnPlateau",),
    "slotbench.interfaces": ("DataSpec", "VideoSpec"),
    "slotbench.tasks.adam_tf": ("AdamTF",),
    "slotbench.tasks.schedule": ("ConstantRate", "WarmupCosine", "WarmupHalfLife", "WarmupStepsCosine"),
    "slotbench.nn.feature_extractor": ("DINOFeatures",),
}

_NAMES = ("dirpath", "filename")
WRITTEN_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "ModelCheckpoint": _NAMES,
    "OnExceptionCheckpoint": _NAMES,
    "AdvancedProfiler": _NAMES,
    "PassThroughProfiler": _NAMES,
    "PyTorchProfiler": _NAMES,
    "SimpleProfiler": _NAMES,
    "CSVLogger": ("save_dir", "name", "version", "prefix"),
    "TensorBoardLogger": ("save_dir", "name", "version", "sub_dir", "prefix"),
}
"""Of the listed classes those that write, and the arguments that their paths are made of; the first is the folder."""


def named_classes() -> Iterator[str]:
    """The import paths of the list."""
    for module, names in _NAMED.items():
        for name in names:
            yield f"{module}.{name}"
