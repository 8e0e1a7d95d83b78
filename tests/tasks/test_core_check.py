"""The first step of a fit says which laws its core breaks, and changes nothing else."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from prediction_tasks import quiet_trainer
from torch import nn

from slotbench import registry
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.interfaces import CoreOutput, PartError, RecurrentCore, SlotSpec, TemporalCore, TokenSpec
from slotbench.tasks import slot_task
from slotbench.tasks.core_check import check_laws
from slotbench.tasks.slot_autoencoding import SlotAutoencoding

SPEC = TokenSpec(8, 5)


class Leaky(RecurrentCore):
    """Slots are a leaky average of what was seen; it drops out and normalises the batch in training."""

    def __init__(self, spec: TokenSpec = SPEC):
        super().__init__()
        self.slot_spec = SlotSpec(3, 8)
        self.q = nn.Parameter(torch.randn(3, 8))
        self.read, self.norm, self.drop = nn.Linear(spec.dim, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)

    def initial_state(self, tokens):
        return self.q.expand(len(tokens), -1, -1)

    def cell(self, tokens, state):
        state = 0.5 * state + self.drop(self.norm(self.read(tokens.mean(1))))[:, None]
        return state, None, state


class Forgets(Leaky):
    def forward(self, tokens, state=None):
        return super().forward(tokens)


class Refuses(Leaky):
    def forward(self, tokens, state=None):
        if state is not None:
            raise NotImplementedError("no state yet")
        return super().forward(tokens)


class LooksAhead(Leaky):
    def per_step(self, tokens):
        return tokens - 0.2 * tokens.mean(dim=1, keepdim=True)


class SaysSo(LooksAhead):
    causal = False


class OnSelf(Leaky):
    kept: object = None

    def cell(self, tokens, state):
        slots, *_ = super().cell(tokens, state if self.kept is None else self.kept[0])
        self.kept = (slots,)
        return slots, None, state


class InBuffer(Leaky):
    def __init__(self, spec: TokenSpec = SPEC):
        super().__init__(spec)
        self.register_buffer("kept", torch.zeros(8))

    def cell(self, tokens, state):
        self.kept = self.kept * 0.5 + tokens.mean()
        return super().cell(tokens + self.kept, state)


class BegunAnew(Leaky):
    """Keeps its state on itself from the beginning of a clip on."""

    def initial_state(self, tokens):
        self.kept = super().initial_state(tokens)
        return self.kept

    def cell(self, tokens, state):
        self.kept = super().cell(tokens, self.kept)[0]
        return self.kept, None, state


class Counts(Leaky):
    calls = 0

    def forward(self, tokens, state=None):
        self.calls += 1
        return super().forward(tokens + self.calls, state)


class Samples(Leaky):
    def per_step(self, tokens):
        return tokens + torch.randn(tokens.shape)


class Looks(Leaky):
    """Keeps what nothing reads, as figures do."""

    def cell(self, tokens, state):
        self.last = tokens
        return super().cell(tokens, state)


CUT, AHEAD, TWICE = "splitting_carries_state", "past_ignores_future", "nothing_is_kept_on_the_module"


def said_of(core: TemporalCore, tokens: torch.Tensor) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_laws(core, tokens)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("kind", "laws"),
    [
        (Leaky, []), (Forgets, [CUT]), (Refuses, [CUT, "NotImplementedError: no state yet"]),
        (LooksAhead, [AHEAD, CUT, "causal = False"]), (SaysSo, []), (BegunAnew, [CUT]), (Counts, [TWICE]),
        (Samples, []), (Looks, []),
    ],
)  # fmt: skip
def test_one_warning_names_the_core_and_the_laws_that_it_breaks(kind, laws):
    core = kind()
    held = {name: value.clone() for name, value in core.state_dict().items()}
    said = said_of(core, torch.randn(3, 6, 5, 8))
    assert len(said) == bool(laws)
    assert all(f"the core {kind.__name__} breaks" in one for one in said)
    assert {law for law in (CUT, AHEAD, TWICE) if law in "".join(said)} == {law for law in laws if "_" in law}
    assert all(law in said[0] for law in laws)
    assert core.training
    assert all(torch.equal(core.state_dict()[name], value) for name, value in held.items())
    assert vars(core).keys() == vars(kind()).keys()


@pytest.mark.parametrize("kind", [OnSelf, InBuffer])
def test_a_state_on_the_module_is_a_sentence_that_names_it(kind):
    with pytest.raises(PartError, match=f"the core {kind.__name__} keeps kept on itself"):
        check_laws(kind(), torch.randn(3, 6, 5, 8))


@pytest.mark.parametrize("name", registry.names("cores"))
def test_nothing_is_said_of_a_registered_core(name, monkeypatch):
    core, called = registry.load("cores", name)(TokenSpec(32, 16, (4, 4))), []
    monkeypatch.setattr(type(core), "__deepcopy__", lambda self, memo: called.append(self) or self, raising=False)
    assert said_of(core, torch.randn(3, 6, 16, 32)) == []
    assert called  # and it was looked at, under autocast too
    with torch.autocast("cpu", torch.bfloat16):
        assert said_of(core, torch.randn(2, 3, 16, 32).bfloat16()) == []


def fitted(core) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    sizes = LoaderOptions(batch_size=4, val_batch_size=2, val_size=2)
    data = BouncingBalls(num_balls=2, num_frames=5, eval_frames=5, resolution=16, loader=sizes)
    encoder, decoder = registry.load("encoders", "PatchEncoder"), registry.load("decoders", "SpatialBroadcastDecoder")
    task = SlotAutoencoding(encoder, core, decoder, data_spec=data.spec)
    quiet_trainer(max_steps=2).fit(task, data)
    return task.state_dict()


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
def test_a_fit_warns_once_and_is_the_same_to_the_bit(monkeypatch):
    with pytest.warns(UserWarning, match="the core LooksAhead breaks laws") as caught:
        fitted(LooksAhead)
    assert sum("breaks laws" in str(warning.message) for warning in caught) == 1
    checked = fitted(Samples)
    monkeypatch.setattr(slot_task, "check_laws", lambda *given: None)
    assert all(torch.equal(value, checked[name]) for name, value in fitted(Samples).items())


def test_a_core_that_cannot_be_copied_is_trained_unchecked():
    core = Forgets()
    core.lock = threading.Lock()
    assert isinstance(core(torch.randn(3, 6, 5, 8)), CoreOutput)
    assert said_of(core, torch.randn(3, 6, 5, 8)) == []
