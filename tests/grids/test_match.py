"""`slotbench match`: the search for a width, and what is printed and written of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slotbench.cli import run
from slotbench.grids.match import RefusedError, find_width

# TinyCore has 4 * dim + dim parameters, the encoder 3 * 4 + 4, the decoder 3 * dim + 3: 19 + 8 * dim
TOTAL_AT_8 = 19 + 8 * 8


@pytest.fixture
def match(workspace, tiny_components, capsys):
    """Runs the command on tiny.yaml and returns exit code and output, runs of blanks as one."""

    def call(*arguments: str) -> tuple[int, str]:
        code = run(["match", "--config", "tiny.yaml", "--plugin", str(tiny_components), *arguments])
        captured = capsys.readouterr()
        return code, " ".join((captured.out + captured.err).split())

    return call


@given(st.integers(1, 5000), st.integers(1, 12), st.integers(1, 7), st.integers(1, 30))
def test_the_two_accepted_widths_around_the_budget_are_found(budget, step, divisor, smallest):
    def count(width: int) -> int:
        if width % divisor or width < smallest:
            raise RefusedError(f"not {width}")
        return width * width

    accepted = [width for width in range(step, 400, step) if width % divisor == 0 and width >= smallest]
    below = [width for width in accepted if width * width <= budget]
    above = [width for width in accepted if width * width > budget]
    lower, upper = find_width(count, budget, step)
    assert lower == ((below[-1], below[-1] ** 2) if below else None)
    assert upper == (above[0], above[0] ** 2)


def test_a_core_is_matched_to_a_number(match):
    code, out = match("TinyCore", "--parameters", str(TOTAL_AT_8))
    assert code == 0
    assert f"TinyCore dim 8 16 40 27 {TOTAL_AT_8} +0.0 %" in out
    assert "--model.core TinyCore --model.core.dim 8" in out


def test_a_budget_can_be_that_of_a_core_of_the_experiment(match):
    code, out = match("TinyCore", "--like", "OtherCore")
    assert code == 0
    assert "budget: 83 trainable parameters of encoder, core and decoder, as OtherCore has" in out
    assert "--model.core.dim 8" in out


def test_a_budget_can_be_that_of_another_experiment(match):
    config = yaml.safe_load(Path("tiny.yaml").read_text())
    config["model"]["init_args"]["core"]["init_args"] = {"dim": 12}
    Path("wide.yaml").write_text(yaml.safe_dump(config))
    _, out = match("TinyCore", "--like", "wide.yaml")
    assert "--model.core TinyCore --model.core.dim 12" in out


def test_nothing_within_the_tolerance_shows_both_sides_and_fails(match):
    code, out = match("TinyCore", "--parameters", "87", "--tolerance", "0.01")
    assert code == 1
    assert "TinyCore dim 8 16 40 27 83 -4.6 % TinyCore dim 9 16 45 30 91 +4.6 %" in out
    assert "TinyCore: no dim comes within 1 %" in out
    assert "to type" not in out


def test_settings_go_to_the_cores_that_have_them(match):
    _, out = match(
        "TinyCore", "OtherCore", "--model.core.heads", "2", "--argument", "OtherCore=num_slots", "--like", "OtherCore"
    )
    assert "--model.core TinyCore --model.core.dim 8" in out
    assert "--model.core OtherCore --model.core.heads 2 --model.core.num_slots" in out


@pytest.mark.parametrize(("core", "argument"), [("TinyCore", "dim"), ("OtherCore", "num_slots")])
def test_written_files_compose_with_the_experiment(match, tiny_components, capsys, core, argument):
    code, out = match(core, "--argument", argument, "--parameters", "83", "--write", "sizes")
    assert code == 0
    assert f"wrote sizes/{core}.yaml" in out
    written = Path("sizes") / f"{core}.yaml"
    assert set(yaml.safe_load(written.read_text())["model"]["init_args"]) == {"core"}
    # the header's own command
    assert f"slotbench fit --config tiny.yaml --config {written}" in written.read_text()
    options = ["--plugin", str(tiny_components)]
    assert run(["show", "tiny.yaml", "--config", str(written), *options]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]["core"]
    assert shown == yaml.safe_load(written.read_text())["model"]["init_args"]["core"]
    assert shown["class_path"] == core
    assert run(["fit", "--config", "tiny.yaml", "--config", str(written), *options]) == 0
    assert "= 83 trainable parameters" in capsys.readouterr().out


def test_widths_that_the_core_refuses_are_passed_over(match):
    Path("even_core.py").write_text(
        "from torch import nn\n"
        "from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec\n"
        "from slotbench.registry import register\n\n"
        "@register('cores')\nclass EvenCore(TemporalCore):\n"
        "    def __init__(self, spec: TokenSpec, num_heads: int = 2, dim: int = 6) -> None:\n"
        "        super().__init__()\n"
        "        if dim % 3 or dim % num_heads:\n"
        "            raise ValueError(f'dim is {dim}; expected a multiple of 3 and of {num_heads}')\n"
        "        self.slot_spec = SlotSpec(num_slots=1, dim=dim)\n"
        "        self.linear = nn.Linear(spec.dim, dim)\n"
        "        # does not work on the meta device\n"
        "        self.linear.weight.sum().item()\n\n"
        "    def forward(self, tokens, state=None):\n"
        "        return CoreOutput(self.linear(tokens), None, None)\n"
    )
    _, out = match("EvenCore", "--plugin", "even_core.py", "--parameters", str(TOTAL_AT_8), "--tolerance", "1")
    assert "--model.core EvenCore --model.core.dim 6" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["TinyCore"], "one of the arguments --parameters --like is required"),
        (["TinyCroe", "--parameters", "9"], "no core named TinyCroe; did you mean TinyCore?"),
        (["TinyCore", "--parameters", "0"], "0 is too small; expected 1 or more"),
        (["TinyCore", "--parameters", "9", "--argument", "dims"], "TinyCore has no argument dims; did you mean dim?"),
        (["TinyCore", "--parameters", "9", "--model.encoder.dim", "0"], "TinyCore takes no dim: "),
    ],
)
def test_mistakes_are_explained(match, arguments, message):
    code, out = match(*arguments)
    assert code == 2
    assert message in out
