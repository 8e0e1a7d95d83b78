"""The first output of a part is checked against the sizes that it announces, and an error names the part."""

from __future__ import annotations

import re
from functools import partial

import pytest
import torch
from prediction_tasks import batch_of
from torch import nn

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.errors import UserError
from slotbench.interfaces import (
    CoreOutput,
    Decoded,
    Decoder,
    Encoder,
    PartError,
    RecurrentCore,
    SlotSpec,
    TemporalCore,
    TokenSpec,
    VideoSpec,
)
from slotbench.registry import load
from slotbench.tasks.codes.chosen_tokenizer import chosen_tokenizer
from slotbench.tasks.slot_autoencoding import SlotAutoencoding

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


def balls() -> BouncingBalls:
    return BouncingBalls(
        num_balls=2,
        num_frames=6,
        eval_frames=6,
        resolution=16,
        loader=LoaderOptions(batch_size=3, val_batch_size=3, val_size=3),
    )


ONE_TOKEN, THREE_SLOTS = TokenSpec(6, 1), SlotSpec(3, 8)


# the tests check shapes where an output is made, which no user's run does: outputs are bent afterwards
class MyEncoder(Encoder):
    def __init__(self, spec: VideoSpec, bend=lambda tokens: tokens, tokens: TokenSpec | None = ONE_TOKEN):
        super().__init__()
        if tokens is not None:
            self.token_spec = tokens
        self.linear, self.bend = nn.Linear(spec.channels, 6), bend

    def forward(self, batch):
        return self.bend(self.linear(batch.pixels.mean(dim=(-1, -2)))[:, :, None])


class MyCore(TemporalCore):
    def __init__(self, spec: TokenSpec, bend=lambda output: output, slots: object = THREE_SLOTS):
        super().__init__()
        if slots is not None:
            self.slot_spec = slots
        self.linear, self.bend = nn.Linear(spec.dim, 8), bend

    def forward(self, tokens, state=None):
        slots = self.linear(tokens.mean(dim=2, keepdim=True)).expand(-1, -1, 3, -1)
        attention = torch.ones(*slots.shape[:3], tokens.shape[2])
        return self.bend(CoreOutput(slots, attention, state, "reading"))


class MyDecoder(Decoder):
    def __init__(self, slots: SlotSpec, target: VideoSpec, bend=lambda decoded: decoded):
        super().__init__()
        self.linear, self.bend, self.target = nn.Linear(slots.dim, target.channels), bend, target

    def forward(self, slots, batch=None):
        size = (self.target.height, self.target.width)
        components = self.linear(slots)[..., None, None].expand(-1, -1, -1, -1, *size)
        masks = torch.full((*slots.shape[:3], *size), 1 / 3)
        return self.bend(Decoded(components.mean(dim=2), masks, components))


def changed(**values):
    """Bends an output: each of these attributes becomes what the function makes of it."""

    def bend(output):
        for name, function in values.items():
            setattr(output, name, function(getattr(output, name)))
        return output

    return bend


def made(encoder=MyEncoder, core=MyCore, decoder=MyDecoder) -> SlotAutoencoding:
    return SlotAutoencoding(encoder, core, decoder, data_spec=balls().spec)


MISTAKES = {
    "encoder, axes": (
        {"encoder": partial(MyEncoder, bend=lambda tokens: tokens[:, :, 0])},
        "the encoder MyEncoder returned tokens of shape [3, 6, 6] and torch.float32; expected floats "
        '"batch time tokens dim", [3, 6, 1, 6]',
    ),
    "encoder, type": (
        {"encoder": partial(MyEncoder, bend=lambda tokens: (tokens, None))},
        "tokens as (tensor",
    ),
    "core, time first": (
        {"core": partial(MyCore, bend=changed(slots=lambda slots: slots.transpose(0, 1)))},
        "the core MyCore returned slots of shape [6, 3, 3, 8]",
    ),
    "core, whole numbers": (
        {"core": partial(MyCore, bend=changed(slots=lambda slots: slots.long()))},
        "slots of shape [3, 6, 3, 8] and torch.int64; expected floats",
    ),
    "core, no slots": ({"core": partial(MyCore, bend=changed(slots=lambda slots: None))}, "returned slots as None"),
    "core, type": ({"core": partial(MyCore, bend=lambda output: output.slots)}, "a Tensor; expected a CoreOutput"),
    "core, attention": (
        {"core": partial(MyCore, bend=changed(attention=lambda weights: weights.mT))},
        'attention of shape [3, 6, 1, 3] and torch.float32; expected floats "batch time slots tokens", [3, 6, 3, 1]',
    ),
    "decoder, channels last": (
        {"decoder": partial(MyDecoder, bend=changed(reconstruction=lambda frames: frames.movedim(2, -1)))},
        '"batch time channels height width", [3, 6, 1, 16, 16]',
    ),
    "decoder, masks": (
        {"decoder": partial(MyDecoder, bend=changed(masks=lambda masks: masks[:, :, :2]))},
        "the decoder MyDecoder returned masks of shape [3, 6, 2, 16, 16]",
    ),
    "decoder, components": (
        {"decoder": partial(MyDecoder, bend=changed(components=lambda components: components[:, :1]))},
        "the decoder MyDecoder returned components of shape [3, 1, 3, 1, 16, 16]",
    ),
    "decoder, type": ({"decoder": partial(MyDecoder, bend=lambda decoded: decoded.reconstruction)}, "a Decoded"),
}


@pytest.mark.parametrize(("parts", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_a_part_hands_over_wrongly_is_said_with_its_name_and_what_it_promised(parts, message):
    with pytest.raises(PartError) as caught:
        made(**parts)(batch_of(balls()))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"encoder": partial(MyEncoder, tokens=None)},
            "the encoder MyEncoder sets no token_spec, from which the next part is built",
        ),
        (
            {"core": partial(MyCore, slots=None)},
            "the core MyCore sets no slot_spec, from which the next part is built",
        ),
        ({"core": partial(MyCore, slots=(3, 8))}, "the core MyCore has a tuple as its slot_spec"),
        ({"core": partial(MyCore, slots=TokenSpec(8, 3))}, "the core MyCore has a TokenSpec as its slot_spec"),
    ],
)
def test_a_part_without_sizes_is_named_when_the_task_is_built(parts, message):
    with pytest.raises(PartError) as caught:
        made(**parts)
    assert message in str(caught.value)


class NoModule:
    """What a part does that forgets, or calls too late, the `__init__` of its base."""

    def __init__(self, *specs):
        self.token_spec, self.slot_spec = ONE_TOKEN, THREE_SLOTS
        self.fill()

    def fill(self):
        self.linear = nn.Linear(2, 2)


def gives_parameter(part):
    part.weight = nn.Parameter(torch.zeros(1))


@pytest.mark.parametrize(("name", "base"), [("encoder", Encoder), ("core", TemporalCore), ("decoder", Decoder)])
@pytest.mark.parametrize(
    "fill", [NoModule.fill, gives_parameter, lambda part: part.register_buffer("x", torch.ones(1)), lambda part: None]
)
def test_a_part_that_forgets_the_init_of_its_base_is_told_so(name, base, fill):
    part = type("Forgets", (NoModule, base), {"fill": fill, "forward": None})
    with pytest.raises(
        PartError, match=r"^Forgets is no torch module yet: begin its __init__ with super\(\).__init__\(\)$"
    ):
        made(**{name: part})


def test_so_is_one_within_a_part_and_a_tokenizer():
    class Inner(NoModule, nn.Module):
        pass

    def core(spec):
        core = MyCore(spec)
        core.inner = Inner()
        return core

    with pytest.raises(PartError, match="Inner is no torch module"):
        made(core=core)
    with pytest.raises(PartError, match="Inner is no torch module"):
        chosen_tokenizer("Task", None, lambda frame: Inner(), balls().spec.input)


def test_an_attribute_that_is_missing_keeps_its_traceback():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        made(core=lambda spec: spec.nothing)


class MyCell(RecurrentCore):
    def __init__(self, spec: TokenSpec, returned):
        super().__init__()
        self.slot_spec, self.returned = THREE_SLOTS, returned

    def initial_state(self, tokens):
        return tokens.new_zeros(len(tokens), 3, 8)

    def cell(self, tokens, state):
        return self.returned(state)


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (lambda slots: (slots, slots), "2 values"),
        (lambda slots: (slots,), "1 values"),
        (lambda slots: (slots, None, slots, {}, {}), "5 values"),
        (lambda slots: slots, "Tensor"),
        (lambda slots: None, "NoneType"),
    ],
)
def test_a_cell_that_returns_something_else_is_told_what_is_expected(returned, found):
    said = f"the cell of MyCell returned {found}; expected (slots, attention or None, state) or a CoreStep"
    with pytest.raises(PartError, match=re.escape(said)):
        made(core=partial(MyCell, returned=returned))(batch_of(balls()))


def test_a_mistake_of_a_part_is_one_that_the_command_line_prints_without_a_traceback():
    assert issubclass(PartError, UserError)


def test_another_number_of_slots_after_training_is_what_the_core_then_promises():
    task = made(core=partial(load("cores", "OCSlotSSM"), num_slots=3, dim=8, slot_init="gaussian"))
    task.core.num_slots = 5
    assert task(batch_of(balls())).slots.shape[2] == 5
