"""An aggregation that a configuration names reaches the core, and the record of the run."""

from __future__ import annotations

from pathlib import Path

import yaml
from slotbench_plugins.cores.psb import PSB

from slotbench.cli import run
from slotbench.tasks.long_context_reasoning import LongContextReasoning

EXPERIMENT = Path(__file__).parents[3] / "experiments" / "blinking_balls.yaml"
BY_NAME = ["--model.core.aggregation", "WeightedMean", "--model.core.aggregation.eps", "0.01"]


def test_aggregation_chosen_by_name_reaches_the_core_and_the_record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = yaml.safe_load(EXPERIMENT.read_text())
    model, data = config["model"]["init_args"], config["data"]["init_args"]
    model["core"] = {"class_path": "PSB", "init_args": {"dim": 16, "num_layers": 1, "num_slots": 2}}
    model["encoder"]["init_args"] = {"dim": 16}
    model["decoder"]["init_args"] = {"num_layers": 1}
    data.update(num_frames=3, loader={"batch_size": 2, "val_batch_size": 2, "val_size": 2})
    config["trainer"].update(max_steps=1, val_check_interval=1, enable_progress_bar=False)
    Path("tiny.yaml").write_text(yaml.safe_dump(config))
    assert run(["fit", "--config", "tiny.yaml", *BY_NAME]) == 0
    (folder,) = Path("runs").glob("*/*")
    core = LongContextReasoning.load_from_checkpoint(folder / "checkpoints" / "last.ckpt").core
    assert isinstance(core, PSB)
    assert core.layers[0].bottom_up.aggregation.eps == 0.01
    recorded = yaml.safe_load((folder / "config.yaml").read_text())["model"]["init_args"]["core"]
    assert recorded["init_args"]["aggregation"] == {
        "class_path": "WeightedMean",
        "init_args": {"eps": 0.01, "eps_form": "sum"},
    }
