"""Checks the parts of a task: the sizes that each announces once built, and the shape of its first output.

A wrong shape is otherwise found out by whatever comes next, which then stands in the traceback in place of the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, get_args

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from slotbench.errors import UserError
from slotbench.interfaces import (
    CoreOutput,
    DataSpec,
    Decoded,
    Decoder,
    Encoder,
    PartError,
    SizedPart,
    SlotSpec,
    TokenSpec,
    VideoBatch,
    VideoSpec,
    WindowedCore,
    check_unit_range,
)

__all__ = [
    "PartName",
    "check_batch",
    "check_choices",
    "check_counts",
    "check_first_output",
    "check_logits",
    "check_views",
    "check_whole_frames",
    "check_window",
    "data_spec_of",
    "part_of",
    "spec_of",
]

PartName = Literal["encoder", "core", "decoder"]

Spec = TypeVar("Spec", TokenSpec, SlotSpec)

_EXAMPLES: dict[type, str] = {
    TokenSpec: "self.token_spec = TokenSpec(dim=64, num_tokens=rows * cols, grid=(rows, cols))",
    SlotSpec: "self.slot_spec = SlotSpec(num_slots, dim)",
}


def check_batch(batch: VideoBatch) -> None:
    """Refuses frames that are not in [0, 1] and masks that are no ids; it reads every pixel.

    Raises:
        UserError: says what there is, and what is expected.
    """
    check_unit_range(batch.frames)
    for name in ("masks", "target_masks"):
        ids = getattr(batch, name)
        if ids is not None and ids.is_floating_point():
            raise UserError(
                f"{name} of the batch are of {ids.dtype}; expected integer ids, 0 = background: an image that was "
                "divided by 255 has none, so read it as integers"
            )


def spec_of(part: nn.Module, name: PartName, kind: type[Spec]) -> Spec:
    """The sizes that a part which has just been built announces, a `TokenSpec` or a `SlotSpec`.

    Raises:
        PartError: it has none, or something else in their place.
    """
    attribute = "token_spec" if kind is TokenSpec else "slot_spec"
    spec = getattr(part, attribute, None)
    if isinstance(spec, kind):
        return spec
    found = "sets no" if spec is None else f"has {_short(spec)} as its"
    raise PartError(
        f"the {name} {type(part).__name__} {found} {attribute}, from which the next part is built: let its __init__ "
        f"announce its output, for example {_EXAMPLES[kind]}"
    )


def part_of(given: Any, name: PartName, *specs: VideoSpec | TokenSpec | SlotSpec) -> Any:
    """The part that a task was given built already, or the one that the factory it was given builds from these sizes.

    Raises:
        PartError: it is neither, or was built from other sizes.
    """
    typed = f"{name}=slotbench.factory({given if isinstance(given, str) else type(given).__name__!r}, ...)"
    if isinstance(given, SizedPart):
        for spec in specs:
            built = given.built_for(type(spec))
            if built is not None and (was := _sizes(built)) != (wanted := _sizes(spec)):
                raise PartError(
                    f"the {name} {type(given).__name__} was built for {was}, and this task has {wanted}: build it from "
                    f"{spec}, or let the task build it, {typed}"
                )
        return given
    if isinstance(given, nn.Module) or not callable(given):
        found = repr(given) if isinstance(given, str) else _short(given)
        raise PartError(f"{name} is {found}; expected one that slotbench.build has built, or a factory, {typed}")
    return given(*specs)


def data_spec_of(encoder: Any, decoder: Any) -> DataSpec | None:
    """The sizes of the data that parts which are built already are for; None where they do not say."""
    if not (isinstance(encoder, SizedPart) and isinstance(decoder, SizedPart)):
        return None
    shown, wanted = encoder.built_for(VideoSpec), decoder.built_for(VideoSpec)
    return None if shown is None or wanted is None else DataSpec(shown, wanted)


def check_views(encoder: Encoder, shown: VideoSpec, decoder: Decoder, wanted: VideoSpec) -> None:
    """Refuses an encoder or a decoder of one view per step where there are several.

    Raises:
        PartError: it takes one, and there are more.
    """
    for name, part, spec in (("encoder", encoder, shown), ("decoder", decoder, wanted)):
        if spec.num_views > 1 and not part.takes_views:
            raise PartError(
                f"the {name} {type(part).__name__} takes one view per step, and the data has {spec.num_views}: choose "
                f"one that takes several (takes_views), or data of a single camera"
            )


def check_logits(decoder: Decoder, does: str) -> None:
    """Refuses a decoder that bounds its image by a sigmoid of its own, where the loss takes logits.

    Args:
        decoder: that has been built.
        does: what the loss does with the image, and what else to do, up to "give".

    Raises:
        PartError: it does.
    """
    if decoder.paints_pixels:
        raise PartError(
            f"the decoder {type(decoder).__name__} bounds its image to [0, 1] by itself, and {does} the decoder "
            "output='linear'"
        )


def check_whole_frames(data_spec: DataSpec, does: str, example: str) -> None:
    """Refuses data whose target is not a frame like the input.

    Args:
        data_spec: of the data.
        does: why a task needs it, how the sentence begins.
        example: a data set that will do.

    Raises:
        ValueError: the target is another one, or frames are cut into patches.
    """
    frame, target = data_spec.input, data_spec.target
    sizes = [(spec.channels, spec.height, spec.width) for spec in (frame, target)]
    if frame.patches_per_side != 1 or sizes[0] != sizes[1]:
        raise ValueError(
            f"{does}; this data gives {frame} and wants {target}: choose a data set of whole frames, for example "
            f"{example}"
        )


def check_choices(**chosen: tuple[str, Any]) -> None:
    """Refuses a word that is none of a `Literal`'s, each with the name of its argument."""
    for name, (given, choices) in chosen.items():
        if given not in get_args(choices):
            raise ValueError(f"no {name} named {given!r}; choose one of {', '.join(get_args(choices))}")


def check_counts(kind: str, **counts: int) -> None:
    """Refuses a negative number of clips or frames, each with the name of its argument."""
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"{name} is {count}; expected a number of {kind}, or 0 for none")


def check_window(core: nn.Module, window: int | None) -> None:
    """Refuses an `eval_window` that the core cannot read."""
    if window is not None and (window < 1 or not isinstance(core, WindowedCore)):
        raise ValueError(
            f"eval_window={window} asks {type(core).__name__} to read the last {window} frames at each step: give at "
            "least 1, and a core that can (PSB), or leave it out"
        )


class _FirstOutput:
    """A forward hook that checks one output and removes itself; later calls cost nothing."""

    def __init__(self, name: PartName, sizes: DataSpec) -> None:
        self.name, self.sizes = name, sizes
        self.handle: RemovableHandle | None = None

    def __call__(self, part: nn.Module, given: Sequence[Any], options: dict[str, Any], output: Any) -> None:
        if self.handle is not None:
            self.handle.remove()
        first, *more = (*given, *options.values())
        batch = next((value for value in more if isinstance(value, VideoBatch)), None)
        _Output(part, self.name).check(first, output, self.sizes, batch)


def check_first_output(part: nn.Module, name: PartName, sizes: DataSpec) -> RemovableHandle:
    """Has the next output of a part held against its sizes, once.

    Args:
        part: an encoder, a core or a decoder.
        name: which.
        sizes: that the parts were built for. Other numbers of views have proportionally as many tokens, and a decoder
            that `paints_rays` paints as many as it is given.

    Returns:
        what calls it off.
    """
    hook = _FirstOutput(name, sizes)
    hook.handle = part.register_forward_hook(hook, with_kwargs=True)
    return hook.handle


class _Output:
    """One output of a part, checked against the announced sizes."""

    def __init__(self, part: nn.Module, name: PartName) -> None:
        self.part, self.name = part, name

    def check(self, given: VideoBatch | Tensor, output: Any, sizes: DataSpec, batch: VideoBatch | None) -> None:
        if self.name == "encoder":
            assert isinstance(given, VideoBatch)
            self._check_encoder(given, output, sizes.input.num_views)
        else:
            assert isinstance(given, Tensor)
            if self.name == "core":
                self._check_core(given, output)
            else:
                self._check_decoder(given, output, sizes.target, batch)

    def _check_encoder(self, batch: VideoBatch, tokens: Any, views: int) -> None:
        spec = spec_of(self.part, "encoder", TokenSpec)
        count = spec.num_tokens * batch.num_views // views
        sizes = {"batch": len(batch), "time": batch.num_steps, "tokens": count, "dim": spec.dim}
        self._shape("tokens", tokens, sizes, f"its token_spec is {spec}, and it was given {_steps(batch)}")

    def _check_core(self, tokens: Tensor, output: Any) -> None:
        self._kind(output, CoreOutput, "CoreOutput(slots, attention, state)")
        spec = spec_of(self.part, "core", SlotSpec)
        steps = {"batch": tokens.shape[0], "time": tokens.shape[1], "slots": spec.num_slots}
        why = f"its slot_spec is {spec}, and it was given tokens of shape {_shape(tokens)}"
        self._shape("slots", output.slots, steps | {"dim": spec.dim}, why)
        if output.attention is not None:
            self._shape("attention", output.attention, steps | {"tokens": tokens.shape[2]}, why)
        self._check_losses(output.losses)

    def _check_decoder(self, slots: Tensor, output: Any, target: VideoSpec, batch: VideoBatch | None) -> None:
        self._kind(output, Decoded, "Decoded(reconstruction, masks)")
        steps = {"batch": slots.shape[0], "time": slots.shape[1]}
        if target.num_views > 1:
            steps["views"] = target.num_views
        count = {"slots": slots.shape[2]}
        channels, pixels = {"channels": target.channels}, {"height": target.height, "width": target.width}
        why = f"it was built for frames of {target.channels} channels, {target.height} x {target.width}, and was given "
        why += f"slots of shape {_shape(slots)}"
        if batch is not None and batch.rays is not None and getattr(self.part, "paints_rays", False):
            steps |= {"views": batch.num_views} if batch.rays.ndim == 6 else {}
            pixels = {"height": batch.rays.shape[-2], "width": batch.rays.shape[-1]}
            why += f" and rays of shape {_shape(batch.rays)}"
        self._shape("reconstruction", output.reconstruction, steps | channels | pixels, why)
        if output.masks is not None:
            self._shape("masks", output.masks, steps | count | pixels, why)
        if output.components is not None:
            self._shape("components", output.components, steps | count | channels | pixels, why)
        for name in ("depth", "background"):
            if getattr(output, name) is not None:
                self._shape(name, getattr(output, name), steps | pixels, why)
        self._check_losses(output.losses)

    def _check_losses(self, losses: dict[str, Tensor]) -> None:
        for term, value in losses.items():
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise PartError(f"{self._who} returned {_short(value)} as the loss {term!r}; expected a scalar tensor")

    @property
    def _who(self) -> str:
        return f"the {self.name} {type(self.part).__name__}"

    def _kind(self, output: Any, kind: type, example: str) -> None:
        if not isinstance(output, kind):
            raise PartError(
                f"{self._who} returned {_short(output)}; expected a {kind.__name__}: let its forward return {example}"
            )

    def _shape(self, what: str, value: Any, sizes: dict[str, int], why: str) -> None:
        axes, expected = " ".join(sizes), list(sizes.values())
        if not isinstance(value, Tensor):
            raise PartError(f'{self._who} returned {_short(value)} as {what}; expected a tensor "{axes}", {expected}')
        if list(value.shape) == expected:
            if value.is_floating_point():
                return
            raise PartError(f"{self._who} returned {what} of type {value.dtype}; expected floating-point numbers")
        wrong = [f"{axis} {there} for {here}" for (axis, here), there in zip(sizes.items(), value.shape, strict=False)
                 if there != here]  # fmt: skip
        which = (
            f" ({', '.join(wrong)})" if len(value.shape) == len(expected) else f", {value.ndim} axes for {len(sizes)}"
        )
        raise PartError(
            f'{self._who} returned {what} of shape {_shape(value)}{which}; expected {expected}, "{axes}": {why}'
        )


def _steps(batch: VideoBatch) -> str:
    return f"frames of shape {_shape(batch.frames)}"


def _shape(value: Tensor) -> list[int]:
    return list(value.shape)


def _sizes(spec: VideoSpec | TokenSpec | SlotSpec) -> str:
    if isinstance(spec, VideoSpec):
        return f"frames of {spec.channels} channels, {spec.height} x {spec.width}"
    if isinstance(spec, TokenSpec):
        return f"{spec.num_tokens} tokens of dim {spec.dim}"
    return f"{spec.num_slots} slots of dim {spec.dim}"


def _short(value: Any) -> str:
    """What something is, in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {_shape(value)}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "nothing (None)" if value is None else f"a {type(value).__name__}"
