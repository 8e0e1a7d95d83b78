"""Single elements of lists and pairs as settings, and values that are no lists, no numbers or no part's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from slotbench.cli import run
from slotbench.config.tree import Typed, read_tree, set_element, typed_settings
from slotbench.errors import UserError

MODEL = {
    "class_path": "SlotAutoencoding",
    "init_args": {
        "encoder": {"class_path": "CNNEncoder", "init_args": {"channels": [8, 8], "kernel_sizes": [5, 3]}},
        "core": {"class_path": "SAVi"},
        "decoder": {"class_path": "SpatialBroadcastDecoder"},
        "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 1.0e-2}},
    },
}
STOPPING = {"class_path": "EarlyStopping", "init_args": {"monitor": "val/loss"}}


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The exit code, model and trainer of a command line, and what is said."""

    def show(*arguments: str, over: str = "{}"):
        files = {"first": {"model": MODEL, "data": {"class_path": "BouncingBalls"}}, "over": yaml.safe_load(over)}
        for name, content in files.items():
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
        given = [word for name in files for word in ("--config", str(tmp_path / f"{name}.yaml"))]
        code = run(["show", *given, *arguments])
        out, said = capsys.readouterr()
        tree = yaml.safe_load(out) or {"model": {"init_args": None}, "trainer": None}
        return code, tree["model"]["init_args"], tree["trainer"], " ".join(said.split())

    return show


def test_elements_are_set_in_lists_that_are_given_in_defaults_and_in_typed_ones(shown):
    code, model, trainer, _ = shown(
        *("--model.optimizer.betas.0", "0.5", "--model.encoder.channels.-1", "4", "--model.encoder.kernel_sizes[0]=7"),
        *("--trainer.callbacks", yaml.safe_dump([STOPPING, "Timer"], default_flow_style=True)),
        *("--trainer.callbacks.0.patience", "7", "--trainer.callbacks.1", "LearningRateMonitor"),
        *("--trainer.callbacks.1.init_args.logging_interval", "step", "--trainer.gradient_clip_val", "-1e-3"),
    )
    assert code == 0
    assert model["optimizer"]["init_args"]["betas"] == [0.5, 0.999]
    assert model["optimizer"]["init_args"]["lr"] == 0.01
    assert model["encoder"]["init_args"]["channels"] == [8, 4]
    assert model["encoder"]["init_args"]["kernel_sizes"] == [7, 3]
    stopping, monitor = trainer["callbacks"]
    assert (stopping["init_args"]["patience"], stopping["init_args"]["monitor"]) == (7, "val/loss")
    assert monitor["class_path"].endswith("LearningRateMonitor")
    assert monitor["init_args"]["logging_interval"] == "step"
    assert trainer["gradient_clip_val"] == -1e-3


@pytest.mark.parametrize(
    ("typed", "over", "words"),
    [
        # elements that cannot be set
        ("--model.encoder.channels.2 4", "{}", ["channels is [8, 8], without an element 2", "channels.2"]),
        ("--trainer.callbacks.0.patience 5", "{}", ["trainer.callbacks is None, without an element 0"]),
        ("--model.optimizer.betas.0", "{}", ["--model.optimizer.betas.0 needs a value"]),
        ("--model.optimizer.betas.0 much", "{}", ["betas of Adam cannot be much", "expected: float."]),
        ("--model.optimizer.betsa.0 0.5", "{}", ["Adam has no argument betsa", "did you mean betas?"]),
        ("--trainer.devices.x 1", "{}", ["trainer.devices has no setting x"]),
        ("", "{model: {init_args: {optimizer: {init_args: {betas: {0: 0.5}}}}}}", ["betas of Adam", "a list"]),
        ("", "{trainer: {callbacks.0: Timer}}", ["trainer.callbacks cannot be", "expected: a list"]),
        # values and keys of another form
        ("--model.optimizer.betas (0.9,0.95)", "{}", ["betas of Adam cannot be", "a list, as [0.9,0.95]"]),
        ("--model.optimizer.betas [0.9]", "{}", ["betas of Adam cannot be [0.9]", "expected: a list of 2 elements"]),
        ("--model.optimizer.lr -inf", "{}", ["lr of Adam cannot be -inf", "expected: float"]),
        ("--model.core.slot_dim 8", "{}", ["SAVi has no argument slot_dim", "did you mean dim?"]),
        ("", "{model: {init_args: {encoder: {init_args: {channels+: [4]}}}}}", ["channels+; did you mean channels?"]),
        ("", "{model: {init_args+: {decay: all}}}", ["init_args+ stands beside class_path: SlotAutoencoding"]),
        ("", "{model: {init_args: {core: {num_slots: 3}}}}", ["num_slots stands beside class_path: SAVi"]),
        ("--trainer.callbacks [EarlyStopping,Timer]", "{}", ["EarlyStopping needs monitor"]),
    ],
)
def test_what_cannot_be_set_is_a_sentence_about_the_setting(shown, typed: str, over: str, words: list[str]):
    code, _, _, said = shown(*typed.split(), over=over)
    assert code == 2
    assert all(word in f"{said}." for word in words), said
    assert len(said) < 700


def test_an_element_counts_as_a_setting_of_its_list_and_only_lists_have_any():
    assert read_tree(["--data.sizes.0", "1"]).typed == {"data.sizes": "1"}
    (one,) = typed_settings(["--data.sizes.0", "-1e-3"])
    assert one == Typed(("data", "sizes", "0"), "-1e-3", ["--data.sizes.0", "-1e-3"])
    tree = {"data": {"class_path": "D", "init_args": {"sizes": [1, [2, 3]]}}}
    set_element(tree, Typed(("data", "sizes", "1", "0"), "5", []))
    assert tree["data"]["init_args"]["sizes"] == [1, [5, 3]]
    with pytest.raises(UserError, match=r"data\.sizes\.0 is 1, without an element 1"):
        set_element(tree, Typed(("data", "sizes", "0", "1"), "5", []))
