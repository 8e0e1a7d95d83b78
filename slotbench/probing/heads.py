"""Linear heads on frozen slots, in float64: least squares in closed form, and multinomial logistic regression."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

__all__ = ["LinearRegression", "LogisticRegression", "standardisation"]


@dataclass(frozen=True)
class LinearRegression:
    """Reads numbers off slots: x @ weight + bias.

    Attributes:
        weight: one column per number.
        bias: one per number.
        target_scale: standard deviation of each number over the rows that it was fitted to; 1 where there is none.
    """

    weight: Float[Tensor, "dim targets"]
    bias: Float[Tensor, " targets"]
    target_scale: Float[Tensor, " targets"]

    @classmethod
    def fit(
        cls, x: Float[Tensor, "rows dim"], y: Float[Tensor, "rows targets"], ridge: float = 1e-6
    ) -> LinearRegression:
        """Least squares by the normal equations of standardised inputs.

        Args:
            x: slots.
            y: what is to be read off them.
            ridge: added to the diagonal of the inputs' correlation matrix. Enough to solve where slots have channels
                that depend on each other, and too little to be seen in R^2; 0 for plain least squares.
        """
        x, y = x.double(), y.double()
        centre, scale = standardisation(x)
        mean, target_scale = standardisation(y)
        z = (x - centre) / scale
        gram = z.T @ z / len(z)
        gram.diagonal().add_(ridge)
        weight = torch.linalg.solve(gram, z.T @ (y - mean) / len(z)) / scale[:, None]
        return cls(weight, mean - centre @ weight, target_scale)

    def __call__(self, x: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows targets"]:
        """What is read off each slot."""
        return x.double() @ self.weight + self.bias


@dataclass(frozen=True)
class LogisticRegression:
    """Tells the class of an object from its slot: the largest of x @ weight + bias.

    Attributes:
        weight: one column per class.
        bias: one per class.
    """

    weight: Float[Tensor, "dim classes"]
    bias: Float[Tensor, " classes"]

    @classmethod
    def fit(
        cls,
        x: Float[Tensor, "rows dim"],
        y: Integer[Tensor, " rows"],
        num_classes: int,
        penalty: float = 1.0,
        iterations: int = 200,
    ) -> LogisticRegression:
        """Minimises the sum of cross-entropies plus `penalty` / 2 times the squared weights of standardised inputs.

        Args:
            x: slots.
            y: classes from 0 on.
            num_classes: how many there are.
            penalty: scikit-learn's 1 / C; the bias is not penalised.
            iterations: L-BFGS iterations at most.
        """
        x = x.double()
        centre, scale = standardisation(x)
        z = (x - centre) / scale
        weight = torch.zeros(x.shape[1], num_classes, dtype=torch.float64, requires_grad=True)
        bias = torch.zeros(num_classes, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [weight, bias], max_iter=iterations, tolerance_grad=1e-6, history_size=20, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = F.cross_entropy(z @ weight + bias, y) + penalty / (2 * len(z)) * weight.square().sum()
            value.backward()
            return value

        optimizer.step(loss)  # type: ignore[arg-type]  # torch wants a float and takes a tensor
        fitted = (weight / scale[:, None]).detach()
        return cls(fitted, bias.detach() - centre @ fitted)

    def __call__(self, x: Float[Tensor, "rows dim"]) -> Integer[Tensor, " rows"]:
        """The class of each slot."""
        return (x.double() @ self.weight + self.bias).argmax(1)


def standardisation(x: Float[Tensor, "rows values"]) -> tuple[Float[Tensor, " values"], Float[Tensor, " values"]]:
    """Mean and standard deviation of each column; 1 for a column that does not vary."""
    mean = x.mean(0)
    spread = (x - mean).square().mean(0).sqrt()
    # rounding leaves a column of equal numbers a spread of about its precision
    varies = spread > 8 * torch.finfo(x.dtype).eps * mean.abs()
    return mean, torch.where(varies, spread, 1.0)
