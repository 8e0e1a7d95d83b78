"""Clockwork VAE: a latent video model whose upper levels tick more slowly than the frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import CoreOutput, GenerativeCore, SlotSpec, TokenSpec
from slotbench.nn.gru import SharedGRU
from slotbench.nn.linear import xavier_linear
from slotbench.nn.slot_init import clip_numbers

Init = Literal["plain", "keras"]

STD_OFFSET = 0.54
MIN_STD = 1e-4


class LevelState(NamedTuple):
    """State of one level after its last tick."""

    sample: Float[Tensor, "batch latent_dim"]
    hidden: Float[Tensor, "batch dim"]


class CWVAEState(NamedTuple):
    """State of every level, the frames so far, and the clip's key, from which its noise is computed."""

    levels: tuple[LevelState, ...]
    step: Integer[Tensor, " batch"]
    key: Integer[Tensor, " batch"]


class CWVAE(GenerativeCore):
    """Clockwork VAE: recurrent state-space models stacked so that level l ticks every `factor ** (l - 1)` frames.

    At each tick a level's GRU steps on from its last sample and the state of the level above. Its prior reads that
    alone; its posterior also reads what the encoder made of the frames until the next tick, mapped by dense layers from
    each level to the one above and summed over these frames. The slot of a frame, one, is the sample and the GRU state
    of the lowest level, the sample being the posterior's. `CoreOutput.losses` has `kl`, the divergence of posterior
    from prior in nats per frame: summed over levels, meaned over frames and clips. `details` has it by frame and level,
    0 where a level does not tick.

    With several levels the posterior sees later frames of a block (`causal` is False), so it is to read clips whole.
    Frames that the last block of a call lacks count as zeros, and an upper level keeps the state that it then has until
    its next tick, in the next call and in `imagine`. A call on whole blocks of the top level is as if the clip were not
    cut. One level is a plain recurrent state-space model, which is causal. `imagine` is causal always.

    Noise is a function of the clip's key, the level and the frame. The key is drawn at the start of a clip, under
    `drawn_by_clip` it is the clip's number; the state carries it. So samples depend neither on the other clips of a
    batch nor on where a clip was cut.

    Source: Saxena, Ba, Hafner, "Clockwork Variational Autoencoders", NeurIPS 2021, and its code, whose Moving-MNIST
    settings are `num_levels=3, factor=6, dim=200, latent_dim=20, feature_dim=1000, feature_layers=3, init="keras"`.
    There the offset of 0.54 is added to the input of the layer that makes a standard deviation, and so here. Its top
    level reads zeros in place of a level above, which are left out here.

    Args:
        token_spec: the output of the encoder; the tokens of a frame are read as one vector.
        num_levels: levels.
        factor: ticks of a level in one of the level above.
        dim: width of the GRU and of the dense layers around it.
        latent_dim: width of a sample.
        feature_dim: hidden width of the dense layers from the features of one level to those of the next.
        feature_layers: of these dense layers; 0 for the same features at all levels.
        init: initial weights of the GRUs, each gate's by its own fan ("plain") or as Keras has them: the inputs' maps
            Xavier-uniform as one matrix, the recurrent ones with orthonormal columns; with "keras" the first layer of
            the top level also counts the zeros that the source reads. All else is Xavier-uniform with biases of zero.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_levels: int = 1,
        factor: int = 6,
        dim: int = 64,
        latent_dim: int = 16,
        feature_dim: int = 64,
        feature_layers: int = 3,
        init: Init = "plain",
    ):
        super().__init__()
        width = token_spec.num_tokens * token_spec.dim
        self.slot_spec = SlotSpec(num_slots=1, dim=latent_dim + dim)
        self.periods = tuple(factor**level for level in range(num_levels))
        self.causal = self.periods[-1] == 1
        self.features = nn.ModuleList(
            _features(width, feature_dim, feature_layers) for _ in range(num_levels - 1)
        )  # of the second level, of the third, ...
        cells = [RSSMCell(width, dim, latent_dim, context_dim=latent_dim + dim) for _ in range(num_levels - 1)]
        cells.append(RSSMCell(width, dim, latent_dim))
        self.cells: Sequence[RSSMCell] = nn.ModuleList(cells)  # type: ignore[assignment]
        if init == "keras":
            for cell in cells:
                nn.init.xavier_uniform_(cell.gru.input_map.weight)
                nn.init.orthogonal_(cell.gru.hidden_map.weight)
            bound = (6 / (latent_dim + (latent_dim + dim) + dim)) ** 0.5
            nn.init.uniform_(next(cells[-1].embed.parameters()), -bound, bound)

    def forward(self, tokens: Float[Tensor, "batch time tokens dim"], state: CWVAEState | None = None) -> CoreOutput:
        """Posterior states of every frame, and the divergence from the prior."""
        features = [tokens.flatten(2)]
        for layer in self.features:
            features.append(layer(features[-1]))
        state = self._initial_state(tokens) if state is None else state
        return self._unroll(tokens.shape[1], state, features)

    def imagine(self, state: CWVAEState, steps: int) -> CoreOutput:
        """Prior states of the next `steps` frames; nothing is read."""
        return self._unroll(steps, state)

    def _initial_state(self, tokens: Tensor) -> CWVAEState:
        batch, device = len(tokens), tokens.device
        clips = clip_numbers(batch)
        if clips is None:
            key = torch.randint(1 << 62, (batch,), device=device)
        else:
            key = torch.tensor(list(clips), dtype=torch.int64, device=device)
        weight = self.cells[0].gru.input_map.weight  # in whose precision the state is, under autocast too
        levels = tuple(
            LevelState(weight.new_zeros(batch, cell.latent_dim), weight.new_zeros(batch, cell.dim))
            for cell in self.cells
        )
        return CWVAEState(levels, torch.zeros_like(key), key)

    def _unroll(self, time: int, state: CWVAEState, features: list[Tensor] | None = None) -> CoreOutput:
        """The next `time` frames, from the top level down; by the posterior where there are `features`."""
        start = int(state.step[:1].sum())  # that of the first clip; 0 where there is none
        if (state.step != start).any():
            raise ValueError("CWVAE: the clips of a batch are at different frames; expected them to be at the same")
        levels: list[LevelState] = []
        divergences: list[Tensor] = []
        above: Tensor | None = None
        for level in reversed(range(len(self.cells))):
            cell, period, last = self.cells[level], self.periods[level], state.levels[level]
            first = -start % period
            ticks = torch.arange(first, max(first, time), period, device=state.key.device)
            noise = _noise(state.key, (start + ticks) * len(self.cells) + level, cell.latent_dim).to(last.hidden)
            nothing = [None] * len(ticks)
            contexts = nothing if above is None else above[:, ticks].unbind(1)
            blocks: Sequence[Tensor | None] = nothing
            if features is not None:
                blocks = _block_sums(features[level][:, first:].to(last.hidden), period).unbind(1)
            outputs, divergence = [torch.cat(last, dim=-1)], list[Tensor]()
            for context, drawn, block in zip(contexts, noise.unbind(1), blocks, strict=True):
                step = cell(last, context, drawn, block)
                last = step.state
                outputs.append(torch.cat(last, dim=-1))
                if step.divergence is not None:
                    divergence.append(step.divergence)
            # each frame has the state of the last tick, which may lie before this call
            tick_of_frame = (torch.arange(time, device=state.key.device) - first) // period + 1
            above = torch.stack(outputs, dim=1)[:, tick_of_frame]
            levels.insert(0, last)
            of_frames = last.hidden.new_zeros(len(state.key), time)
            if divergence:
                of_frames = of_frames.index_copy(1, ticks, torch.stack(divergence, dim=1))
            divergences.insert(0, of_frames)
        assert above is not None
        after = CWVAEState(tuple(levels), state.step + time, state.key)
        output = CoreOutput(above[:, :, None], None, after)
        if features is not None:
            of_levels = torch.stack(divergences, dim=-1)
            output.details, output.losses = {"kl": of_levels.detach()}, {"kl": of_levels.sum(dim=-1).mean()}
        return output


class CellStep(NamedTuple):
    """State after a tick, and the divergence of posterior from prior where something was read."""

    state: LevelState
    divergence: Float[Tensor, " batch"] | None


class RSSMCell(nn.Module):
    """Recurrent state-space cell: a GRU from the last sample on, a Gaussian prior of it and a posterior of an input.

    Source: Hafner et al., "Learning Latent Dynamics for Planning from Pixels", ICML 2019, as CW-VAE's code has it.

    Args:
        input_dim: width of what the posterior reads.
        dim: width of the GRU and of the dense layers.
        latent_dim: width of a sample.
        context_dim: width of the state of the level above; 0 for none.
    """

    def __init__(self, input_dim: int, dim: int, latent_dim: int, context_dim: int = 0):
        super().__init__()
        self.dim, self.latent_dim = dim, latent_dim
        self.embed = nn.Sequential(xavier_linear(latent_dim + context_dim, dim), nn.ReLU())
        self.gru = SharedGRU(dim, dim)
        self.prior = nn.Sequential(xavier_linear(dim, dim), nn.ReLU(), GaussianHead(dim, latent_dim))
        self.posterior = nn.Sequential(
            xavier_linear(dim + input_dim, dim),
            nn.ReLU(),
            xavier_linear(dim, dim),
            nn.ReLU(),
            GaussianHead(dim, latent_dim),
        )

    def forward(
        self,
        state: LevelState,
        context: Float[Tensor, "batch context_dim"] | None,
        noise: Float[Tensor, "batch latent_dim"],
        inputs: Float[Tensor, "batch input_dim"] | None = None,
    ) -> CellStep:
        """One tick; the sample is the posterior's where there are `inputs`, otherwise the prior's."""
        embedded = self.embed(state.sample if context is None else torch.cat([state.sample, context], dim=-1))
        hidden = self.gru(self.gru.input_gates(embedded), state.hidden)
        # in the precision of the state, under autocast too
        mean, std = (value.to(hidden.dtype) for value in self.prior(hidden))
        if inputs is None:
            return CellStep(LevelState(mean + std * noise, hidden), None)
        seen = self.posterior(torch.cat([hidden, inputs.to(hidden.dtype)], dim=-1))
        seen_mean, seen_std = (value.to(hidden.dtype) for value in seen)
        divergence = gaussian_divergence(seen_mean, seen_std, mean, std)
        return CellStep(LevelState(seen_mean + seen_std * noise, hidden), divergence)


class GaussianHead(nn.Module):
    """Mean and standard deviation of a Gaussian, softplus(W (x + 0.54) + b) + 1e-4.

    Args:
        dim: width of the input.
        latent_dim: width of the Gaussian.
    """

    def __init__(self, dim: int, latent_dim: int):
        super().__init__()
        self.mean = xavier_linear(dim, latent_dim)
        self.std = xavier_linear(dim, latent_dim)

    def forward(
        self, x: Float[Tensor, "*batch dim"]
    ) -> tuple[Float[Tensor, "*batch latent_dim"], Float[Tensor, "*batch latent_dim"]]:
        """(mean, standard deviation)."""
        return self.mean(x), F.softplus(self.std(x + STD_OFFSET)) + MIN_STD


def gaussian_divergence(
    mean: Float[Tensor, "*batch dim"],
    std: Float[Tensor, "*batch dim"],
    prior_mean: Float[Tensor, "*batch dim"],
    prior_std: Float[Tensor, "*batch dim"],
) -> Float[Tensor, "*batch"]:
    """KL divergence in nats of a diagonal Gaussian from another, the prior."""
    ratio, distance = std / prior_std, (mean - prior_mean) / prior_std
    return (0.5 * (ratio.square() + distance.square() - 1) - ratio.log()).sum(dim=-1)


def _features(width: int, hidden_dim: int, num_layers: int) -> nn.Module:
    """Dense layers with ReLU between them, from the features of a level to as wide ones for the level above."""
    widths = [width, *[hidden_dim] * (num_layers - 1), width][: num_layers + 1]
    layers: list[nn.Module] = []
    for index in range(num_layers):
        layers += [xavier_linear(widths[index], widths[index + 1]), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _block_sums(values: Float[Tensor, "batch time dim"], period: int) -> Float[Tensor, "batch blocks dim"]:
    """Sums over blocks of `period` frames; what the last one lacks counts as zeros."""
    padded = F.pad(values, (0, 0, 0, -values.shape[1] % period))
    return padded.unflatten(1, (padded.shape[1] // period, period)).sum(dim=2)


def _noise(
    key: Integer[Tensor, " batch"], places: Integer[Tensor, " places"], dim: int
) -> Float[Tensor, "batch places dim"]:
    """Standard normal numbers in float64, each a function of the key, the place and its index alone.

    Source: the mixing function of SplitMix64; Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014.
    """
    counter = places[:, None] * dim + torch.arange(dim, device=key.device)
    bits = _mix(_mix(key)[:, None, None] + counter)
    uniform = (_shifted(bits, 11).double() + 0.5) / 2**53
    return torch.special.ndtri(uniform)


def _mix(values: Tensor) -> Tensor:
    """Spreads every bit of integers of 64 bits over all of them; overflow wraps round."""
    values = values * -0x61C8864680B583EB - 0x61C8864680B583EB
    values = (values ^ _shifted(values, 30)) * -0x40A7B892E31B1A47
    values = (values ^ _shifted(values, 27)) * -0x6B2FB644ECCEEE15
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Shifted right with zeros from the left, as integers without a sign are."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)
