"""The first output of a part is checked against the sizes that it announces, and an error names the part."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from prediction_tasks import batch_of, quiet_trainer
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
    SlotSpec,
    TemporalCore,
    TokenSpec,
    VideoSpec,
)
from slotbench.registry import load
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
        return self.bend(self.linear(batch.frames.mean(dim=(-1, -2)))[:, :, None])


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


CORE_PROMISES = "its slot_spec is SlotSpec(num_slots=3, dim=8, grid=None), and it was given tokens of shape"

MISTAKES = {
    "encoder, axes": (
        {"encoder": partial(MyEncoder, bend=lambda tokens: tokens[:, :, 0])},
        'the encoder MyEncoder returned tokens of shape [3, 6, 6], 3 axes for 4; expected [3, 6, 1, 6], "batch time '
        'tokens dim": its token_spec is TokenSpec(dim=6, num_tokens=1, grid=None), and it was given frames of shape',
    ),
    "encoder, tokens": (
        {"encoder": partial(MyEncoder, tokens=TokenSpec(6, 4))},
        "tokens of shape [3, 6, 1, 6] (tokens 1 for 4); expected [3, 6, 4, 6]",
    ),
    "encoder, type": (
        {"encoder": partial(MyEncoder, bend=lambda tokens: (tokens, None))},
        'the encoder MyEncoder returned a tuple of 2 as tokens; expected a tensor "batch time tokens dim"',
    ),
    "core, axes": (
        {"core": partial(MyCore, bend=changed(slots=lambda slots: slots[:, :, 0]))},
        f"the core MyCore returned slots of shape [3, 6, 8], 3 axes for 4; expected [3, 6, 3, 8], "
        f'"batch time slots dim": {CORE_PROMISES} [3, 6, 1, 6]',
    ),
    "core, slots and dim": (
        {"core": partial(MyCore, bend=changed(slots=lambda slots: slots[:, :, :2, :7]))},
        "the core MyCore returned slots of shape [3, 6, 2, 7] (slots 2 for 3, dim 7 for 8); expected [3, 6, 3, 8]",
    ),
    "core, time first": (
        {"core": partial(MyCore, bend=changed(slots=lambda slots: slots.transpose(0, 1)))},
        "the core MyCore returned slots of shape [6, 3, 3, 8] (batch 6 for 3, time 3 for 6)",
    ),
    "core, whole numbers": (
        {"core": partial(MyCore, bend=changed(slots=lambda slots: slots.long()))},
        "the core MyCore returned slots of type torch.int64; expected floating-point numbers",
    ),
    "core, no slots": (
        {"core": partial(MyCore, bend=changed(slots=lambda slots: None))},
        "the core MyCore returned nothing (None) as slots; expected a tensor",
    ),
    "core, type": (
        {"core": partial(MyCore, bend=lambda output: output.slots)},
        "the core MyCore returned a tensor of shape [3, 6, 3, 8]; expected a CoreOutput: let its forward return "
        "CoreOutput(slots, attention, state)",
    ),
    "core, attention": (
        {"core": partial(MyCore, bend=changed(attention=lambda weights: weights.mT))},
        "the core MyCore returned attention of shape [3, 6, 1, 3] (slots 1 for 3, tokens 3 for 1); expected "
        '[3, 6, 3, 1], "batch time slots tokens"',
    ),
    "decoder, pixels": (
        {"decoder": partial(MyDecoder, bend=changed(reconstruction=lambda frames: frames[..., 2:]))},
        "the decoder MyDecoder returned reconstruction of shape [3, 6, 1, 16, 14] (width 14 for 16)",
    ),
    "decoder, channels last": (
        {"decoder": partial(MyDecoder, bend=changed(reconstruction=lambda frames: frames.movedim(2, -1)))},
        '(channels 16 for 1, width 1 for 16); expected [3, 6, 1, 16, 16], "batch time channels height width": it was '
        "built for frames of 1 channels, 16 x 16, and was given slots of shape [3, 6, 3, 8]",
    ),
    "decoder, masks": (
        {"decoder": partial(MyDecoder, bend=changed(masks=lambda masks: masks[:, :, :2]))},
        "the decoder MyDecoder returned masks of shape [3, 6, 2, 16, 16] (slots 2 for 3)",
    ),
    "decoder, components": (
        {"decoder": partial(MyDecoder, bend=changed(components=lambda components: components[:, :1]))},
        "the decoder MyDecoder returned components of shape [3, 1, 3, 1, 16, 16] (time 1 for 6)",
    ),
    "decoder, losses": (
        {"decoder": partial(MyDecoder, bend=changed(losses=lambda losses: {"extra": torch.zeros(2)}))},
        "the decoder MyDecoder returned a tensor of shape [2] as the loss 'extra'; expected a scalar tensor",
    ),
    "decoder, type": (
        {"decoder": partial(MyDecoder, bend=lambda decoded: decoded.reconstruction)},
        "expected a Decoded: let its forward return Decoded(reconstruction, masks)",
    ),
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
            "the encoder MyEncoder sets no token_spec, from which the next part is built: let its __init__ announce "
            "its output, for example self.token_spec = TokenSpec(dim=64, num_tokens=rows * cols, grid=(rows, cols))",
        ),
        (
            {"core": partial(MyCore, slots=None)},
            "the core MyCore sets no slot_spec, from which the next part is built: let its __init__ announce its "
            "output, for example self.slot_spec = SlotSpec(num_slots, dim)",
        ),
        ({"core": partial(MyCore, slots=(3, 8))}, "the core MyCore has a tuple of 2 as its slot_spec"),
        ({"core": partial(MyCore, slots=TokenSpec(8, 3))}, "the core MyCore has a TokenSpec as its slot_spec"),
    ],
)
def test_a_part_without_sizes_is_named_when_the_task_is_built(parts, message):
    with pytest.raises(PartError) as caught:
        made(**parts)
    assert message in str(caught.value)


def test_a_mistake_of_a_part_is_one_that_the_command_line_prints_without_a_traceback():
    assert issubclass(PartError, UserError)


def hooks(task) -> int:
    return sum(len(part._forward_hooks) for part in (task.encoder, task.core, task.decoder))


def test_an_output_is_looked_at_once_and_later_calls_have_no_hook():
    data = balls()
    later = {"wrong": False}

    def sometimes(output):
        return changed(slots=lambda slots: slots[:, :, :2])(output) if later["wrong"] else output

    task, batch = made(core=partial(MyCore, bend=sometimes)), batch_of(data)
    assert hooks(task) == 3
    task(batch)
    assert hooks(task) == 0
    later["wrong"] = True
    output = task.core(task.encoder(batch))
    assert output.slots.shape[2] == 2


def test_every_stage_looks_anew_and_never_twice_at_a_time():
    data, seen = balls(), []
    task = made(core=partial(MyCore, bend=lambda output: seen.append(hooks(task)) or output))
    task(batch_of(data))
    for _ in range(2):
        task.setup("fit")
    assert hooks(task) == 3
    quiet_trainer(max_steps=1, limit_val_batches=1).fit(task, datamodule=data)
    assert hooks(task) == 0
    quiet_trainer().validate(task, datamodule=data, verbose=False)
    # a core of the first call of each stage has been looked at: its hook goes when the call has ended
    assert seen[1] == 2
    assert hooks(task) == 0


def test_a_task_whose_parts_wait_for_their_first_call_can_be_copied_and_stored():
    data = balls()
    encoder = partial(MyEncoder, bend=torch.nn.Identity())
    task = made(encoder, partial(MyCore, bend=torch.nn.Identity()), partial(MyDecoder, bend=torch.nn.Identity()))
    for other in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        assert hooks(other) == 3
        other(batch_of(data))
        assert hooks(other) == 0
        assert hooks(task) == 3


def test_another_number_of_slots_after_training_is_what_the_core_then_promises():
    task = made(core=partial(load("cores", "OCSlotSSM"), num_slots=3, dim=8, slot_init="gaussian"))
    task.core.num_slots = 5
    assert task(batch_of(balls())).slots.shape[2] == 5


def test_a_part_may_be_given_its_input_by_name():
    task, batch = made(core=partial(MyCore, bend=lambda output: SimpleNamespace())), batch_of(balls())
    with pytest.raises(PartError, match="the core MyCore returned a SimpleNamespace; expected a CoreOutput"):
        task.core(tokens=task.encoder(batch=batch))
