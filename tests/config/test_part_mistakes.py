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


@pytest.mark.parametrize(
    ("core", "said"),
    [
        ("FlatCore", "the core FlatCore returned slots of shape [4, 2, 24]"),
        ("ForgetfulCore", "the core ForgetfulCore sets no slot_spec"),
        ("UnnamedCore", "attention_kind=None: give 'assignment'"),
    ],
)
def test_the_mistake_of_a_core_is_a_sentence(workspace, tiny_components, capsys, core, said):
    Path("mine.py").write_text(PLUGIN)
    plugins = ("--plugin", str(tiny_components), "--plugin", "mine.py")
    assert run(["fit", "--config", "tiny.yaml", *plugins, "--model.core", core]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(Path().glob("runs/*/*/config.yaml"))
