"""A kernel that cannot run is one sentence, not a traceback and not another kernel."""

from pathlib import Path

from slotbench.cli import run

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "blinking_balls.yaml"


def test_a_named_kernel_that_cannot_run_here_says_why(tmp_path, capsys):
    arguments = ["fit", "--config", str(EXPERIMENT), "--runs_dir", str(tmp_path), "--trainer.accelerator", "cpu"]
    assert run([*arguments, "--data.batch_size", "1", "--model.core.kernel", "mamba_ssm"]) == 2
    message = capsys.readouterr().err
    assert "kernel 'mamba_ssm' of selective_scan cannot run: it runs on CUDA" in " ".join(message.split())
    assert "Traceback" not in message
