"""What tasks refuse in a sentence: parts that break their interface, batches of other sizes, impossible arguments."""

from __future__ import annotations

from collections.abc import Mapping
from traceback import walk_tb
from typing import Any, Literal, TypeVar

from torch import Tensor, nn

from slotbench.errors import UserError
from slotbench.interfaces import (
    CoreOutput,
    DataSpec,
    Decoded,
    Decoder,
    Encoder,
    PartError,
    SlotSpec,
    TokenSpec,
    VideoBatch,
    VideoSpec,
    WindowedCore,
    check_unit_range,
)

__all__ = [
    "check_batch",
    "check_core_output",
    "check_decoded",
    "check_logits",
    "check_tokens",
    "check_views",
    "check_whole_frames",
    "check_window",
    "part_of",
    "spec_of",
]

PartName = Literal["encoder", "core", "decoder", "tokenizer", "objective"]

Spec = TypeVar("Spec", TokenSpec, SlotSpec)


def check_batch(batch: VideoBatch, frame: VideoSpec) -> None:
    """Refuses frames of another size than `frame`, pixels outside of [0, 1] (it reads all), and masks of floats."""
    sizes = (frame.channels, frame.height, frame.width)
    if batch.frames.shape[-3:] != sizes:
        raise UserError(
            f"the batch has frames of shape {list(batch.frames.shape)}; expected {list(sizes)}, channels, height and "
            "width of the data that the task was built for, at their end: resize them, or give the task their data_spec"
        )
    check_unit_range(batch.pixels)
    for name in ("masks", "target_masks"):
        ids = getattr(batch, name)
        if ids is not None and ids.is_floating_point():
            raise UserError(
                f"{name} of the batch are of {ids.dtype}; expected integer ids, 0 = background: an image that was "
                "divided by 255 has none, so read it as integers"
            )


def part_of(given: Any, name: PartName, *specs: VideoSpec | TokenSpec | SlotSpec) -> Any:
    """The part that a task was given built already, or the one that a factory builds from these sizes."""
    if isinstance(given, nn.Module):
        return given
    if not callable(given):
        raise PartError(f"{name} is {given!r}; expected a part, or a factory: slotbench.factory(NAME, ...)")
    try:
        part = given(*specs)
    except AttributeError as error:
        if "Module.__init__()" not in str(error):
            raise
        *_, (frame, _) = walk_tb(error.__traceback__)
        part = frame.f_locals["self"]
    if isinstance(part, nn.Module) and "_parameters" not in vars(part):
        raise PartError(f"{type(part).__name__} is no torch module yet: begin its __init__ with super().__init__()")
    return part


def spec_of(part: nn.Module, name: PartName, kind: type[Spec]) -> Spec:
    """The sizes that a part which has just been built announces; a PartError if it has none."""
    attribute = "token_spec" if kind is TokenSpec else "slot_spec"
    spec = getattr(part, attribute, None)
    if isinstance(spec, kind):
        return spec
    found = "sets no" if spec is None else f"has a {type(spec).__name__} as its"
    raise PartError(f"the {name} {type(part).__name__} {found} {attribute}, from which the next part is built")


def check_tokens(encoder: Encoder, tokens: Any, batch: VideoBatch, shown: VideoSpec) -> None:
    """Refuses tokens that are not what the encoder announces; with other numbers of views, proportionally as many."""
    spec = spec_of(encoder, "encoder", TokenSpec)
    steps = {"batch": len(batch), "time": batch.num_steps}
    sizes = steps | {"tokens": spec.num_tokens * batch.num_views // shown.num_views, "dim": spec.dim}
    _check_shape(f"the encoder {type(encoder).__name__}", "tokens", tokens, sizes)


def check_core_output(core: nn.Module, output: Any, tokens: Tensor) -> None:
    """Refuses an output of a core that is no `CoreOutput`, or not what its `slot_spec` announces."""
    who, spec = f"the core {type(core).__name__}", spec_of(core, "core", SlotSpec)
    if not isinstance(output, CoreOutput):
        raise PartError(f"{who} returned a {type(output).__name__}; expected a CoreOutput")
    slots = {"batch": tokens.shape[0], "time": tokens.shape[1], "slots": spec.num_slots}
    _check_shape(who, "slots", output.slots, slots | {"dim": spec.dim})
    if output.attention is not None:
        _check_shape(who, "attention", output.attention, slots | {"tokens": tokens.shape[2]})


def check_decoded(decoder: Decoder, output: Any, slots: Tensor, target: VideoSpec, batch: VideoBatch | None) -> None:
    """Refuses an output of a decoder that has not the sizes of the target, or of the rays where it paints those."""
    who = f"the decoder {type(decoder).__name__}"
    if not isinstance(output, Decoded):
        raise PartError(f"{who} returned a {type(output).__name__}; expected a Decoded")
    views: tuple[int, ...] = (target.num_views,) if target.num_views > 1 else ()
    height, width = target.height, target.width
    if decoder.paints_rays and batch is not None and batch.rays is not None:
        views, (height, width) = batch.rays.shape[2:-3], batch.rays.shape[-2:]
    steps = {"batch": slots.shape[0], "time": slots.shape[1]} | ({"views": views[0]} if views else {})
    count, colours = {"slots": slots.shape[2]}, {"channels": target.channels}
    middle = {"reconstruction": colours, "masks": count, "components": count | colours, "depth": {}, "background": {}}
    for name, between in middle.items():
        if (value := getattr(output, name)) is not None or name == "reconstruction":
            _check_shape(who, name, value, steps | between | {"height": height, "width": width})


def _check_shape(who: str, what: str, value: Any, sizes: Mapping[str, int]) -> None:
    wanted = list(sizes.values())
    if isinstance(value, Tensor) and list(value.shape) == wanted and value.is_floating_point():
        return
    found = f"of shape {list(value.shape)} and {value.dtype}" if isinstance(value, Tensor) else f"as {value!r:.40}"
    raise PartError(f'{who} returned {what} {found}; expected floats "{" ".join(sizes)}", {wanted}')


def check_views(encoder: Encoder, shown: VideoSpec, decoder: Decoder, wanted: VideoSpec) -> None:
    """Refuses an encoder or a decoder of one view per step where there are several; a PartError."""
    for name, part, spec in (("encoder", encoder, shown), ("decoder", decoder, wanted)):
        if spec.num_views > 1 and not part.takes_views:
            raise PartError(f"the {name} {type(part).__name__} takes one view per step; the data has {spec.num_views}")


def check_logits(decoder: Decoder, does: str) -> None:
    """Refuses a decoder that bounds its image by a sigmoid of its own, where the loss takes logits; a PartError."""
    if decoder.paints_pixels:
        raise PartError(f"the decoder {type(decoder).__name__} bounds its image to [0, 1], and {does} output='linear'")


def check_whole_frames(data_spec: DataSpec, does: str, example: str) -> None:
    """Refuses data whose target is not a frame like the input; `does` begins the sentence, `example` is a data set."""
    frame, target = data_spec.input, data_spec.target
    sizes = [(spec.channels, spec.height, spec.width) for spec in (frame, target)]
    if frame.patches_per_side != 1 or sizes[0] != sizes[1]:
        raise ValueError(f"{does}; this data gives {frame} and wants {target}: choose whole frames, such as {example}")


def check_window(core: nn.Module, window: int | None) -> None:
    """Refuses an `eval_window` that the core cannot read."""
    if window is not None and (window < 1 or not isinstance(core, WindowedCore)):
        raise ValueError(f"eval_window={window}: expected 1 or more, and a WindowedCore; got {type(core).__name__}")
