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
    def resolve(*arguments, over=None, **changes):
        config = yaml.safe_load(yaml.safe_dump(PREDICTION))
        config["model"]["init_args"] |= changes
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        if over is not None:
            later = tmp_path / "over.yaml"
            later.write_text(yaml.safe_dump({"model": {"init_args": over}}))
            arguments = ("--config", str(later), *arguments)
        assert run(["show", "--config", str(path), *arguments]) == 0
        return yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]

    return resolve


def test_what_was_said_of_a_part_goes_over_to_the_next_and_its_defaults_do_not(resolved):
    core = resolved("--model.core", "SAVi")["core"]["init_args"]
    assert core["num_slots"] == 5
    assert core["num_heads"] == 2
    sgd = resolved("--model.optimizer.lr", "0.5", "--model.optimizer", "torch.optim.SGD")["optimizer"]["init_args"]
    assert sgd["lr"] == 0.5
    assert sgd["weight_decay"] == 0


def test_of_another_data_set_only_what_was_said_of_the_loader_goes_over(tmp_path, capsys):
    path = tmp_path / "model.yaml"
    path.write_text(yaml.safe_dump({"model": PREDICTION["model"]}))
    given = ["--data", "VideoFolder", "--data.path", "x", "--data.loader.batch_size", "3", "--data", "BouncingBalls"]
    assert run(["show", "--config", str(path), *given]) == 0
    loader = yaml.safe_load(capsys.readouterr().out)["data"]["init_args"]["loader"]
    assert (loader["batch_size"], loader["val_batch_size"], loader["num_workers"]) == (3, 64, 0)


def test_a_list_of_classes_after_another_config_is_taken_as_it_is(tmp_path, capsys):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(yaml.safe_dump(PREDICTION))
    callbacks = [
        {"class_path": "lightning.pytorch.callbacks.LearningRateMonitor"},
        {"class_path": "EarlyStopping", "init_args": {"monitor": "val/loss"}},
    ]
    second.write_text(yaml.safe_dump({"trainer": {"callbacks": callbacks}}))
    assert run(["show", "--config", str(first), "--config", str(second)]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)["trainer"]["callbacks"]
    assert [callback["class_path"].rpartition(".")[2] for callback in shown] == ["LearningRateMonitor", "EarlyStopping"]


def test_a_value_that_was_given_survives_an_exchange_though_it_is_the_old_classs_default(resolved):
    without = {"class_path": "SlotSSM"}
    default = resolved(core=without)["core"]["init_args"]["num_heads"]
    given = {"class_path": "SlotSSM", "init_args": {"num_heads": default}}
    assert resolved("--model.core", "SAVi", core=given)["core"]["init_args"]["num_heads"] == default
    assert resolved("--model.core", "SAVi", core=without)["core"]["init_args"]["num_heads"] != default
    decay = ("--model.optimizer.weight_decay", "0.01", "--model.optimizer", "torch.optim.SGD")
    assert resolved()["optimizer"]["init_args"]["weight_decay"] == 0.01
    assert resolved(*decay)["optimizer"]["init_args"]["weight_decay"] == 0.01
    assert resolved(*decay[2:])["optimizer"]["init_args"]["weight_decay"] == 0


def test_another_class_with_arguments_of_its_own_on_the_command_line_starts_clean(resolved):
    core = resolved("--model.core", '{"class_path": "SAVi", "init_args": {"num_iterations": 2}}')["core"]["init_args"]
    assert core["num_iterations"] == 2
    assert core["num_slots"] != 5


def test_a_whole_experiment_leaves_nothing_of_the_one_before(tmp_path, capsys):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(yaml.safe_dump(PREDICTION | {"trainer": {"gradient_clip_val": 0.5}, "seed_everything": 3}))
    core = {"core": {"class_path": "SlotSSM", "init_args": {"num_slots": 7}}}
    model = {"class_path": "VideoPrediction", "init_args": PREDICTION["model"]["init_args"] | core}
    second.write_text(yaml.safe_dump({"model": model, "data": {"class_path": "BouncingBalls"}}))
    shown = []
    for files in ([second], [first, second]):
        words = [word for file in files for word in ("--config", str(file))]
        assert run(["show", *words, "--model.core.state_dim", "4"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert yaml.safe_load(shown[1])["model"]["init_args"]["core"]["init_args"]["num_slots"] == 7
