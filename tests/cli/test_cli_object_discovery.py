"""Object discovery from the command line: what a user meets first."""

import yaml

from slotbench.cli import run

PARTS = {
    "encoder": {
        "class_path": "CNNEncoder",
        "init_args": {"dim": 8, "channels": [4], "kernel_sizes": [3], "strides": [2]},
    },
    "core": {"class_path": "SAVi", "init_args": {"dim": 8, "num_slots": 2}},
    "decoder": {"class_path": "SpatialBroadcastDecoder", "init_args": {"channels": 4}},
}


def test_a_data_set_whose_files_are_missing_ends_in_a_sentence_and_no_traceback(tmp_path, capsys):
    config = {
        "model": {"class_path": "SlotAutoencoding", "init_args": PARTS},
        "data": {"class_path": "MOVi", "init_args": {"path": str(tmp_path / "nowhere"), "resolution": 16}},
        "trainer": {"max_steps": 1, "accelerator": "cpu"},
    }
    path = tmp_path / "movi.yaml"
    path.write_text(yaml.safe_dump(config))
    assert run(["fit", "--config", str(path), "--runs_dir", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert "split of MOVi: the folder" in error
    assert "Traceback" not in error
