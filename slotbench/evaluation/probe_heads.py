"""Heads on frozen slots, by scikit-learn, and their scores."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from slotbench.evaluation.probe_factors import Kind

__all__ = ["Head", "accuracy", "coefficient_of_determination", "fit_linear", "fit_mlp"]

Head = Callable[[Float[Tensor, "rows dim"]], Tensor]
"""Reads something off slots: numbers "rows targets", or class numbers " rows"."""

_RIDGE = 1e-6  # of the channels' correlation matrix


def fit_linear(
    x: Float[Tensor, "rows dim"], y: Float[Tensor, "rows targets"] | Integer[Tensor, " rows"], kind: Kind
) -> Head:
    """Least squares for numbers, logistic regression with C = 1 for classes, in float64 on standardised channels.

    Least squares has a ridge that is enough to solve where channels depend on each other, and too little to be seen in
    R^2. If there is a single class, the head names it.
    """
    model: Any
    if kind == "continuous":
        model = Ridge(alpha=_RIDGE * len(x))
    elif len(y.unique()) == 1:
        model = DummyClassifier()
    else:
        model = LogisticRegression(max_iter=1000)
    with warnings.catch_warnings():
        # after so many steps the loss falls too little to be seen in the accuracy
        warnings.simplefilter("ignore", ConvergenceWarning)
        pipeline = make_pipeline(StandardScaler(), model).fit(x.double().numpy(), y.numpy())

    def head(slots: Float[Tensor, "rows dim"]) -> Tensor:
        read = pipeline.predict(slots.double().numpy())
        return torch.from_numpy(read.reshape(len(slots), -1) if kind == "continuous" else read)

    return head


def fit_mlp(
    x: Float[Tensor, "rows dim"],
    y: Float[Tensor, "rows targets"] | Integer[Tensor, " rows"],
    clips: Integer[Tensor, " rows"],
    kind: Kind,
    *,
    seed: int = 0,
    max_epochs: int = 100,
    patience: int = 8,
    held_out: float = 0.1,
) -> Head:
    """One hidden layer of 256, Adam on the rows of most clips, stopped when the loss on those of the others is least.

    Whole clips are held out, because the frames of one clip resemble each other; scikit-learn's own early stopping
    would hold out rows. It stops after `patience` epochs without a lower loss on the `held_out` share of the clips.
    """
    random = np.random.RandomState(seed)
    names = np.unique(clips.numpy())
    watched = np.isin(clips.numpy(), random.permutation(names)[: max(1, round(held_out * len(names)))])
    if watched.all():  # a single clip
        fitted = judged = watched
    else:
        fitted, judged = ~watched, watched
    inputs, targets = StandardScaler().fit(x.numpy()), StandardScaler()
    z, t = inputs.transform(x.numpy()), y.numpy()
    # a generator: a number would draw the same order in every epoch
    sizes = {"hidden_layer_sizes": 256, "batch_size": min(512, int(fitted.sum())), "alpha": 0, "random_state": random}
    model: Any
    if kind == "continuous":
        t = targets.fit_transform(t)
        model, more = MLPRegressor(**sizes), {}
    else:
        model, more = MLPClassifier(**sizes), {"classes": np.unique(t)}
    parts = (z[fitted], t[fitted].squeeze()), (z[judged], t[judged].squeeze())
    model = _stopped_early(model, *parts, more, max_epochs, patience)

    def head(slots: Float[Tensor, "rows dim"]) -> Tensor:
        read = model.predict(inputs.transform(slots.numpy()))
        if kind == "continuous":
            read = targets.inverse_transform(read.reshape(len(slots), -1))
        return torch.from_numpy(read)

    return head


def _stopped_early(model: Any, fitted: Any, judged: Any, more: dict[str, Any], max_epochs: int, patience: int) -> Any:
    """The network as it was when its loss on the rows that it is not fitted to was least."""
    (x, y), (others, true) = fitted, judged
    best, best_epoch, best_model = np.inf, 0, model
    for epoch in range(1, max_epochs + 1):
        model.partial_fit(x, y, **more)
        if more:
            loss = log_loss(true, model.predict_proba(others), labels=model.classes_)
        else:
            loss = mean_squared_error(true, model.predict(others))
        if loss < best:
            best, best_epoch, best_model = loss, epoch, copy.deepcopy(model)
        elif epoch - best_epoch >= patience:
            break
    return best_model


def accuracy(predicted: Integer[Tensor, " rows"], true: Integer[Tensor, " rows"]) -> float:
    """Share of the rows whose class is right; nan without rows."""
    return float((predicted == true).double().mean())


def coefficient_of_determination(
    predicted: Float[Tensor, "rows coordinates"], true: Float[Tensor, "rows coordinates"]
) -> float:
    """R^2 = 1 - SSE / SST of each coordinate, averaged over those that vary; nan if none does.

    SST is about the mean of the rows that are scored, so a prediction without a clue scores 0 at best, and one that
    is worse than this mean is negative.
    """
    predicted, true = predicted.double(), true.double()
    total = (true - true.mean(0)).square().sum(0)
    # what rounding leaves of equal float32 numbers is no variation
    varies = total > 1e-12 * true.square().sum(0)
    if not varies.any():
        return math.nan
    return float((1 - (true - predicted).square().sum(0)[varies] / total[varies]).mean())
