"""A task that is evaluated by autoregressive roll-out: context and horizon, scores, what it reports and shows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.data.base import check_choices
from slotbench.figures.charts import absence_chart, horizon_chart
from slotbench.figures.maze_maps import has_maze, maze_maps
from slotbench.figures.rollouts import rollout_sheet, rollout_video
from slotbench.interfaces import CoreOutput, Decoded, Predictor, State, VideoBatch
from slotbench.metrics.contingency import resized_masks
from slotbench.metrics.objects.utilisation import cell_utilisation
from slotbench.metrics.scores import Score
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.rollouts.conditions import Conditions, RolloutOptions
from slotbench.tasks.rollouts.groups import RolloutGroups
from slotbench.tasks.rollouts.objects import ObjectScores, visible_parts
from slotbench.tasks.rollouts.rollout import (
    PIECE,
    Feedback,
    Watch,
    forced_loss,
    in_pieces,
    painted_alone,
    simple_predictions,
)
from slotbench.tasks.rollouts.scores import RolloutScores
from slotbench.tasks.slot_task import SlotTask, may_be_cut

__all__ = ["RolloutTask"]


@dataclass
class Predicted(Decoded):
    """Predictions of frames, with what the core tells of the steps that they were made from (`CoreOutput.details`)."""

    details: Mapping[str, Tensor] = field(default_factory=dict)


class RolloutTask(SlotTask, Predictor):
    """Next to `forward` and a teacher-forced `loss`, a subclass writes `frames`, and calls `declare_rollouts`.

    Both are given clips whole, unless both are marked by `frame_by_frame`: evaluation then reads long clips in pieces,
    through `decode`, and adds the losses up as `sums_frames` says. Arguments that subclasses share:

    Args:
        rollout: lengths of roll-outs, and how they are scored; see `RolloutOptions`.
        conditions: which actions and frames the model is shown; see `Conditions`.
    """

    sums_frames: bool = False
    """Whether `loss` is a sum over the frames of a clip, and not their mean."""
    hides_frames: ClassVar[bool] = False
    """Whether the task itself hides frames from the core (`VideoBatch.hidden`); otherwise the encoder is to."""

    def declare_rollouts(
        self,
        options: RolloutOptions,
        weights: MetricWeights,
        conditions: Conditions = Conditions(),
        feedback: Feedback = "probability",
        thresholds_in_test: bool = False,
        object_scores: bool = False,
        num_codes: int | None = None,
    ) -> None:
        """Says how roll-outs are made and scored: the arguments are those of subclasses, and `thresholds_in_test`."""
        check_choices(feedback=(feedback, Feedback))
        self.context, self.horizon, self.short_context = options.context, options.horizon, options.short_context
        self._report_horizons = options.report_horizons
        frame = self.data_spec.target
        weights.check(frame, self.context + self.horizon)
        conditions.check(None if self.hides_frames else self.encoder, self.data_spec.input.num_actions)
        self.metric_weights, self.conditions, self.feedback = weights, conditions, feedback
        self._thresholds_in_test = thresholds_in_test
        scored = (self.horizon, frame, options.quantise, options.report_horizons)
        groups = (None, RolloutGroups(self.horizon, options.group_size, options.report_horizons))
        objects = [ObjectScores(self.horizon, self.context) if object_scores else None for _ in groups]
        parts = zip(groups, objects, strict=True)
        self.declare_scores(*(RolloutScores(*scored, *part, num_codes) for part in parts))

    @abstractmethod
    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """What the decoder painted, as frames in [0, 1]."""

    def next_frame(self, decoded: Decoded, feedback: Feedback) -> tuple[Tensor, Tensor]:
        """The frame in [0, 1] that a step predicts, and what the next step reads in its place."""
        frame = self.frames(decoded)
        return frame, (frame > 0.5).to(frame) if feedback == "threshold" else frame

    def decode(self, output: CoreOutput, batch: VideoBatch) -> Predicted:
        """The prediction of every frame of `batch` but the first, from the core's output of every one but the last."""
        decoded = self.decoded(output.slots, batch.slice_time(1, batch.num_steps))
        values = {name: getattr(decoded, name) for name in Decoded.__dataclass_fields__}
        return Predicted(**values, details=output.details)

    def training_loss(self, batch: VideoBatch) -> Tensor:
        """The loss of a clip, of which actions may be dropped or frames hidden."""
        return super().training_loss(self.conditions.of_training(batch))

    @property
    def reported(self) -> tuple[Score, ...]:
        """Error of the first frames, error, PSNR and SSIM of all; LPIPS and FVD of the test, or what they need."""
        error = "error: MSE per pixel, {} frames ahead".format
        names = {"mse": error(self.horizon), "psnr": "PSNR in dB", "ssim": "SSIM"}
        test: RolloutScores = self.scores_of("test")
        clips = test.groups.clips if test.groups else 0
        weighed = {
            "lpips": ("LPIPS (AlexNet), in the test", self.metric_weights.lpips),
            "fvd": (f"FVD, in the test, of {clips} clips", self.metric_weights.fvd),
        }
        scores = [
            Score(f"rollout_mse/first_{count}", error(count), higher_is_better=False)
            for count in self._report_horizons
            if count < self.horizon
        ]
        scores += [
            Score(f"rollout_{name}", label, higher_is_better=name != "mse")
            for name, label in names.items()
            if name in test.names
        ]
        scores.append(Score("rollout_frames_ahead", "frames ahead of every baseline"))
        groups_of_pixels = self.scores_of(self._stage).pixel_groups
        scores += [
            Score(f"rollout_psnr/{name}", f"PSNR on {name.replace('_', ' ')} pixels") for name in groups_of_pixels
        ]
        if test.objects is not None:
            scores.append(Score("rollout_mse_sum", "error: MSE summed over pixels", higher_is_better=False))
            scores.append(Score("rollout_mota", "MOTA of the masks", needs="a decoder with masks", of_masks=True))
        for name, (label, path) in weighed.items():
            needs = f"--model.metric_weights.{name} FILE" if path is None else "slotbench test RUN"
            scores.append(Score(f"rollout_{name}", label, higher_is_better=False, needs=needs, stage="test"))
        return tuple(scores)

    def score(self, batch: VideoBatch, scores: RolloutScores) -> Tensor:
        """Scores the roll-out, the first time beside baselines and oracles; in the test, thresholded feedback too."""
        true = self._future(batch)
        loss = self.forced_loss(batch, partial(self.watch_forced, scores))
        beside = self._references(batch) if scores.wants_references else {}
        if scores.objects is None:
            steps = self.rollout_steps(batch)
        else:
            watch = self._scoring_of_context(batch, scores.objects, bool(beside))
            steps = self.rollout_steps(batch, components=True, watch=watch)
            steps = scores.objects.watch(steps, self._layers(batch))
        pieces: Iterable[tuple[Mapping[str, Tensor], Tensor]] = (
            ({"": part} | {name: frames[:, at] for name, frames in beside.items()}, true[:, at])
            for at, part in in_pieces(steps, self.horizon, scores.add_sampling, self.device)
        )
        if scores.objects is not None:
            masks = batch.require("masks")[:, self.context - 1 : self.context + self.horizon]
            pieces = scores.objects.look(pieces, masks.long(), bool(beside))
        pixels = self._pixel_groups(batch)
        scores.update(pieces, batch.pixels[:, : self.context], batch.index, pixels)
        if self.short_context is not None:
            late = self.conditions.of_evaluation(batch)
            late = late.slice_time(self.context - self.short_context, batch.num_steps)
            steps = self.rollout_steps(late, self.short_context)
            parts = in_pieces(steps, self.horizon, lambda *_: None, self.device)
            scores.update((({"short_context": part}, true[:, at]) for at, part in parts), pixels=pixels)
        if scores.groups is not None and self._thresholds_in_test:
            steps = self.rollout_steps(batch, feedback="threshold")
            thresholded = in_pieces(steps, self.horizon, scores.add_sampling, self.device)
            scores.update(({"thresholded": part}, true[:, at]) for at, part in thresholded)
        return loss

    def watch_forced(self, scores: RolloutScores, output: Decoded, batch: VideoBatch) -> None:
        """Scores the teacher-forced predictions of a piece of a batch; a subclass may score more of them."""
        if isinstance(output, Predicted):
            scores.add_details(output.details)

    def forced_loss(
        self, batch: VideoBatch, watch: Callable[[Decoded, VideoBatch], object] = lambda *_: None
    ) -> Tensor:
        """The teacher-forced loss of a batch; of long clips piece by piece, where `forward` and `loss` allow it."""

        def loss(output: Decoded, piece: VideoBatch) -> Tensor:
            watch(output, piece)
            return self.loss(output, piece)

        batch = self.conditions.of_evaluation(batch)
        if self.conditions.frame_mask is None and may_be_cut(self.forward) and may_be_cut(self.loss):
            return forced_loss((self.encoded, self.tracked), self.decode, loss, batch, self.sums_frames)
        return loss(self(batch), batch)

    def _scoring_of_context(
        self, batch: VideoBatch, scores: ObjectScores, beside: bool
    ) -> Callable[[CoreOutput], None]:
        """Scores what is predicted of the context, and how much the first frame of the horizon depends on each slot."""
        read = 0

        def look(output: CoreOutput) -> None:
            nonlocal read
            first, read = read, read + output.slots.shape[1]
            if first >= self.context:
                return
            opening = output.slots[:, : self.context - 1 - first]
            if opening.shape[1]:
                scores.watch_context(self.frames(self.decoder(opening)), batch.pixels, first + 1, beside)
            if read == self.context and self.core.slot_spec.grid is None:
                shares = cell_utilisation(lambda slots: self.frames(self.decoder(slots)), output.slots[:, -1:])
                scores.add_utilisation(shares[:, 0])

        return look

    def rollout(self, batch: VideoBatch, context: int | None = None, horizon: int | None = None) -> Decoded:
        """The frames of `rollout_steps`, together: "batch horizon channels height width", with the decoder's masks."""
        steps = list(self.rollout_steps(batch, context, horizon))
        masks = [step.masks for step in steps if step.masks is not None]
        frames = torch.cat([step.reconstruction for step in steps], dim=1)
        return Decoded(frames, torch.cat(masks, dim=1) if masks else None)

    def rollout_steps(
        self,
        batch: VideoBatch,
        context: int | None = None,
        horizon: int | None = None,
        feedback: Feedback | None = None,
        components: bool = False,
        watch: Watch = lambda _: None,
    ) -> Iterator[Decoded]:
        """Reads the context at once, and predicts frames in [0, 1], with the decoder's masks, as they are asked for.

        Of frames and time only the first `context` are read; actions, and which frames are hidden, are read for every
        predicted frame. What is not given is the task's own. `components` paints each slot's own image, too.
        """
        context = context or self.context
        if batch.num_steps < context:
            raise ValueError(
                f"a roll-out from {context} context frames needs clips of at least as many, and these have "
                f"{batch.num_steps}: lower context, or make the clips longer"
            )
        how = (horizon or self.horizon, feedback or self.feedback, components, watch)
        return self._predicted(self.conditions.of_evaluation(batch), context, *how)

    def _predicted(
        self, batch: VideoBatch, context: int, horizon: int, feedback: Feedback, components: bool, watch: Watch
    ) -> Iterator[Decoded]:
        """What `rollout_steps` gives, of a context that is long enough; a task that predicts otherwise overrides it."""
        state: State | None = None
        for start in range(0, context, PIECE):
            out = self.core(self.encoder(batch.slice_time(start, min(start + PIECE, context))), state)
            slots, state = out.slots[:, -1:], out.state
            watch(out)

        def go_on(slots: Tensor, state: State) -> Iterator[Decoded]:
            first = batch.time[:, context - 1 : context]
            for step in range(1, horizon + 1):
                decoded = self.decoder(slots)
                frame, read = self.next_frame(decoded, feedback)
                masks = decoded.masks
                if masks is not None:  # of the cells of codes, where these are what the decoder predicts
                    masks = resized_masks(masks, (frame.shape[-2], frame.shape[-1]))
                yield Decoded(frame, masks, painted_alone(decoded, self.frames) if components else None)
                if step < horizon:
                    here = slice(context + step - 1, context + step)
                    actions = None if batch.actions is None else batch.actions[:, here]
                    hidden = None if batch.hidden is None else batch.hidden[:, here]
                    out = self.core(self.encoder(VideoBatch(read, first + step, actions=actions, hidden=hidden)), state)
                    slots, state = out.slots, out.state
                    watch(out)

        return go_on(slots, state)

    def predict(self, batch: VideoBatch) -> dict[str, Tensor]:
        """The predicted frames and which steps they are, and each slot's share in each pixel, if the decoder tells."""
        batch = self.as_batch(batch)
        decoded = self.rollout(batch)
        steps = batch.time[:, :1] + torch.arange(self.context, self.context + self.horizon, device=batch.time.device)
        found = {"frames": decoded.reconstruction, "steps": steps}
        return found if decoded.masks is None else found | {"masks": decoded.masks}

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Per clip what followed and what was predicted, and which slot painted each pixel; of a maze also its maps."""
        with self.deterministic_sampling(batch, 0):
            decoded = self.rollout(batch)
        found = {"rollouts": rollout_sheet(batch.pixels, decoded, self.context, self._best_baseline(batch))}
        if has_maze(batch):
            found["maze"] = maze_maps(batch, decoded.reconstruction, self.context)
        return found

    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Roll-outs of the first two clips, beside what really followed and the baseline that is nearest to it."""
        clips = batch.map(lambda value: value[:2])
        with self.deterministic_sampling(clips, 0):
            decoded, last = self.rollout(clips), self.context + self.horizon
        name, simple = self._best_baseline(clips)
        found = {}
        for i, predicted in enumerate(decoded.reconstruction):
            masks = None if decoded.masks is None else decoded.masks[i]
            found[f"rollout_{i}"] = rollout_video(clips.pixels[i, :last], predicted, masks, (name, simple[i]))
        return found

    def plots(self) -> dict[str, np.ndarray]:
        """Each score of the last evaluation by step of the horizon, and where pixels have one, by time out of view."""
        scores: RolloutScores = self.scores_of(self._stage)
        panels, absence = scores.panels(), scores.over_absence()
        found = {"horizon": horizon_chart(panels)} if panels else {}
        if len(absence["model"]) > 1:
            found["absence"] = absence_chart(absence, "squared error per pixel", "what a pixel shows", (0, None))
        return found

    def _future(self, batch: VideoBatch) -> Float[Tensor, "batch horizon channels height width"]:
        future = batch.pixels[:, self.context : self.context + self.horizon]
        if future.shape[1] < self.horizon:
            raise ValueError(
                f"evaluation takes context + horizon = {self.context} + {self.horizon} frames and the clips have "
                f"{batch.num_steps}: set data.eval_frames to at least {self.context + self.horizon}, or lower "
                "model.rollout.context or model.rollout.horizon"
            )
        return future

    def _layers(self, batch: VideoBatch) -> Float[Tensor, "batch horizon objects channels height width"]:
        """Every object alone in the frames to predict, where it is hidden too if the data set knows."""
        future = batch.slice_time(self.context, self.context + self.horizon)
        layers = None if self._data is None else self._data.layers(future)
        return visible_parts(future.pixels, future.require("masks").long()) if layers is None else layers

    def _pixel_groups(self, batch: VideoBatch) -> dict[str, Tensor]:
        return {} if self._data is None else self._data.pixel_groups(batch, self.context, self.horizon)

    def _baselines(self, batch: VideoBatch) -> dict[str, Tensor]:
        """The frames that predictors make which learn nothing."""
        simple = simple_predictions(batch.pixels[:, : self.context], self.horizon)
        more = {} if self._data is None else self._data.baseline_predictions(batch, self.context, self.horizon)
        return simple | more

    def _best_baseline(self, batch: VideoBatch) -> tuple[str, Tensor]:
        """The baseline with the least squared error on these clips, and its frames."""
        true, baselines = self._future(batch), self._baselines(batch)
        return min(baselines.items(), key=lambda named: float((named[1] - true).square().mean()))

    def _references(self, batch: VideoBatch) -> dict[str, Tensor]:
        """The frames that are scored beside the model's: baselines, and oracles where the data set has any."""
        simple, knowing = self._baselines(batch), dict[str, Tensor]()
        if self._data is not None:
            knowing |= self._data.oracle_predictions(batch, self.context, self.horizon)
        if self.scores_of("test").objects is not None:
            # what one-step scores with the true frames as input stand beside; it reads what a roll-out must not
            knowing["previous true frame"] = batch.pixels[:, self.context - 1 : self.context + self.horizon - 1]
        return {f"baseline|{name}": frames for name, frames in simple.items()} | {
            f"oracle|{name}": frames for name, frames in knowing.items()
        }
