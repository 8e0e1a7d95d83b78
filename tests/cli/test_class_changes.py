"""Arguments of a part that is exchanged for another class."""

import pytest
import yaml

from slotbench.cli import run

PREDICTION = {
    "model": {
        "class_path": "VideoPrediction",
        "init_args": {
            "encoder": {"class_path": "PatchEncoder"},
            "core": {"class_path": "SlotSSM", "init_args": {"num_slots": 5, "num_heads": 2}},
            "decoder": {"class_path": "TransformerDecoder"},
        },
    },
    "data": {"class_path": "BouncingBalls"},
}


@pytest.fixture
def resolved(tmp_path, capsys):
    def resolve(*arguments, **changes):
        config = yaml.safe_load(yaml.safe_dump(PREDICTION))
        config["model"]["init_args"] |= changes
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        assert run(["show", "--config", str(path), *arguments]) == 0
        return yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]

    return resolve


def test_another_optimiser_does_not_inherit_the_default_ones_decay(resolved):
    adam = {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.1}}
    assert resolved()["optimizer"]["init_args"]["weight_decay"] == 0.01
    assert resolved(optimizer=adam)["optimizer"]["init_args"]["weight_decay"] == 0
    assert resolved(optimizer=adam)["optimizer"]["init_args"]["lr"] == 0.1


def test_what_was_said_of_a_part_goes_over_to_the_next_and_its_defaults_do_not(resolved):
    core = resolved("--model.core", "SAVi")["core"]["init_args"]
    assert core["num_slots"] == 5
    assert core["num_heads"] == 2
    sgd = resolved("--model.optimizer.lr", "0.5", "--model.optimizer", "torch.optim.SGD")["optimizer"]["init_args"]
    assert sgd["lr"] == 0.5
    assert sgd["weight_decay"] == 0


def test_a_list_of_classes_after_another_config_is_taken_as_it_is(tmp_path, capsys):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(yaml.safe_dump(PREDICTION))
    callbacks = [
        {"class_path": "lightning.pytorch.callbacks.LambdaCallback"},
        {"class_path": "EarlyStopping", "init_args": {"monitor": "val/loss"}},
    ]
    second.write_text(yaml.safe_dump({"trainer": {"callbacks": callbacks}}))
    assert run(["show", "--config", str(first), "--config", str(second)]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)["trainer"]["callbacks"]
    assert [callback["class_path"].rpartition(".")[2] for callback in shown] == ["LambdaCallback", "EarlyStopping"]


def test_null_is_a_value_like_any_other(resolved):
    inputs = resolved("--model.core", "RIM", "--model.core.num_inputs", "null")["core"]["init_args"]["num_inputs"]
    assert inputs is None
    assert resolved("--model.init_from", "null")["init_from"] is None
