"""The first mistakes of who writes a part end in a sentence that names it, and leave no run behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotbench.cli import run

PLUGIN = '''
from torch import nn

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.registry import register


class Base(TemporalCore):
    def __init__(self, spec: TokenSpec, num_slots: int = 2):
        super().__init__()
        self.num_slots = num_slots
        self.linear = nn.Linear(spec.dim, 8)

    def forward(self, tokens, state=None):
        return CoreOutput(self.linear(tokens).expand(-1, -1, self.num_slots, -1), None, None)


@register("cores")
class ForgetfulCore(Base):
    """Says nothing about its slots."""


@register("cores")
class FlatCore(Base):
    """Hands over the slots side by side."""

    def __init__(self, spec: TokenSpec, num_slots: int = 2):
        super().__init__(spec, num_slots)
        self.slot_spec = SlotSpec(num_slots, 8)

    def forward(self, tokens, state=None):
        output = super().forward(tokens)
        output.slots = output.slots.flatten(2)
        return output


@register("cores")
class UnnamedCore(Base):
    """Does not say what its attention is."""

    def __init__(self, spec: TokenSpec, num_slots: int = 2):
        super().__init__(spec, num_slots)
        self.slot_spec = SlotSpec(num_slots, 8)

    def forward(self, tokens, state=None):
        slots = super().forward(tokens).slots
        return CoreOutput(slots, slots[..., :1], None)
'''


@pytest.fixture
def sentence(workspace, tiny_components, capsys):
    """What stderr says when a core is trained; the exit code must be 2, and no run may be left."""
    Path("mine.py").write_text(PLUGIN)

    def call(core: str, command: str = "fit") -> str:
        plugins = ("--plugin", str(tiny_components), "--plugin", "mine.py")
        assert run([command, "--config", "tiny.yaml", *plugins, "--model.core", core]) == 2
        assert not list(Path().glob("runs/*/*/config.yaml"))
        return " ".join(capsys.readouterr().err.split())

    return call


@pytest.mark.parametrize("command", ["fit", "validate"])
def test_slots_of_a_wrong_shape_are_blamed_on_the_core_that_handed_them_over(sentence, command):
    said = sentence("FlatCore", command)
    assert said.startswith("slotbench: the core FlatCore returned slots of shape [4, 2, 24]")
    assert "[4, 2, 3, 8]" in said
    assert "Traceback" not in said


def test_a_forgotten_slot_spec_is_the_cores_mistake_and_not_the_tasks(sentence):
    said = sentence("ForgetfulCore")
    assert said.startswith("slotbench: the core ForgetfulCore sets no slot_spec")
    assert said.endswith("for example self.slot_spec = SlotSpec(num_slots, dim)")
    assert "TinyTask" not in said


def test_attention_without_its_kind_is_a_sentence_too(sentence):
    said = sentence("UnnamedCore")
    assert said.startswith("slotbench: ")
    assert "attention_kind=None: give 'assignment'" in said
    assert "Traceback" not in said
