"""`docs/scripts/draw_training.py`: a figure per thing that the records hold, variants in order, no weights needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from docs_scripts import docs_script

SCORE = "val/fg_ari/video/decoder"


@pytest.fixture
def script():
    with docs_script("draw_training") as script:
        yield script


def record(folder: Path, frames: int, seed: int, score: float, *, gradient: bool = False, higher: bool = True) -> None:
    """What `slotbench grid unpack` lays for one point, as far as the figures read it."""
    run = folder / f"config=PSB,num_frames={frames},seed={seed}-0123abcd"
    run.mkdir(parents=True)
    headline = {"metric": SCORE, "label": "found", "baselines": {"a": 0.4, "b": 0.1}, "higher_is_better": higher}
    (run / "run.json").write_text(json.dumps({"state": "finished", "headlines": [headline]}))
    task = {"class_path": "SlotAutoencoding", "init_args": {"core": {"class_path": "PSB"}}}
    (run / "config.yaml").write_text(json.dumps({"model": task, "seed_everything": seed}))
    train = {"step": 24, "train/loss": 1.0} | ({"train/gradient_norm": 0.5} if gradient else {})
    val = {"step": 49, "val/loss": 0.5, SCORE: score}
    (run / "metrics.jsonl").write_text(f"{json.dumps(train)}\n{json.dumps(val)}\n")


def drawn(script, monkeypatch, folder: Path) -> set[str]:
    monkeypatch.setattr(sys, "argv", ["draw_training.py", str(folder), "--out", str(folder / "out"), "--name", "study"])
    assert script.main() == 0
    return {path.name for path in (folder / "out").iterdir()}


def test_gradients_are_drawn_where_runs_have_logged_them(script, monkeypatch, tmp_path):
    record(tmp_path / "without", 3, 0, 0.5)
    record(tmp_path / "with", 3, 0, 0.5, gradient=True)
    assert drawn(script, monkeypatch, tmp_path / "without") == {"study_scores.png", "study_loss.png"}
    assert drawn(script, monkeypatch, tmp_path / "with") == {
        f"study_{what}.png" for what in ("scores", "loss", "gradients")
    }


@pytest.mark.parametrize(("higher", "best"), [(True, 0.4), (False, 0.1)])
def test_variants_stand_in_order_with_a_dot_per_run_and_the_best_baseline(script, monkeypatch, tmp_path, higher, best):
    for frames, scores in ((12, (0.2, 0.3)), (3, (0.5, 0.7))):
        for seed, score in enumerate(scores):
            record(tmp_path, frames, seed, score, higher=higher)
    axes = []
    figure_of = script.figure_of
    monkeypatch.setattr(script, "figure_of", lambda columns: axes.append(figure_of(columns)) or axes[-1])
    drawn(script, monkeypatch, tmp_path)
    (scores,) = axes[0][1]
    assert [label.get_text() for label in scores.get_yticklabels()] == ["PSB, 3 frames", "PSB, 12 frames"]
    lines = [[round(float(value), 6) for value in line.get_xdata()] for line in scores.get_lines()]
    assert lines == [[0.5, 0.7], [0.6, 0.6], [0.2, 0.3], [0.25, 0.25], [best, best]]


def course(folder: Path, point: str, scores: list[float]) -> None:
    """A run of a grid, validated every 50 updates."""
    record(folder / point, 3, 0, scores[-1])
    (made,) = (folder / point).iterdir()
    rows = [{"step": 50 * (n + 1) - 1, "val/loss": 0.5, SCORE: score} for n, score in enumerate(scores)]
    (made / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    made.rename(folder / f"{point}-0123abcd")
    (folder / point).rmdir()


def test_a_headline_over_the_updates_has_a_panel_per_rule_and_the_mean_of_the_seeds(script, monkeypatch, tmp_path):
    course(tmp_path, "config=PSB,max_steps=100,rule=first,seed=0", [0.1, 0.5])
    course(tmp_path, "config=PSB,max_steps=100,rule=first,seed=1", [0.3, 0.9])
    course(tmp_path, "config=RIM,max_steps=100,rule=first,seed=0", [0.2, 0.2])
    course(tmp_path, "config=RIM,max_steps=100,rule=last,seed=0", [0.6, 0.8])
    course(tmp_path, "config=AAA,max_steps=100,rule=last,seed=0", [0.3, 0.3])
    axes = []
    figure_of = script.figure_of
    monkeypatch.setattr(script, "figure_of", lambda columns: axes.append(figure_of(columns)) or axes[-1])
    script.draw_over_updates(script.runs_below(tmp_path), tmp_path / "updates.png", "fg_ari/video/decoder")
    (panels,) = (panel for _, panel in axes)
    assert [panel.get_title(loc="left") for panel in panels] == ["found; rule first", "found; rule last"]
    lines = [
        {line.get_label(): [round(float(value), 6) for value in line.get_ydata()] for line in panel.get_lines()}
        for panel in panels
    ]
    assert lines == [
        {"PSB": [0.2, 0.7], "RIM": [0.2, 0.2], "a": [0.4, 0.4]},
        {"AAA": [0.3, 0.3], "RIM": [0.6, 0.8], "a": [0.4, 0.4]},
    ]
    first, last = (
        next(line.get_color() for line in panel.get_lines() if line.get_label() == "RIM").tolist() for panel in panels
    )
    assert first == last  # a variant has one colour in all panels
    assert (tmp_path / "updates.png").stat().st_size > 0


def test_where_only_the_budget_differs_the_panels_are_called_by_it(script):
    assert script.panel_of("PSB, max_steps 100") == ("PSB", "max_steps 100")
    assert script.panel_of("PSB, max_steps 100, num_frames 3") == ("PSB", "num_frames 3")
    assert script.panel_of("PSB") == ("PSB", "")


def test_scores_of_the_attention_stand_beside_the_same_baselines(script, monkeypatch, tmp_path):
    record(tmp_path, 3, 0, 0.5)
    runs = script.runs_below(tmp_path)
    (run,) = runs["PSB"]
    run.scores[SCORE.replace("decoder", "attention")] = 0.7
    axes = []
    figure_of = script.figure_of
    monkeypatch.setattr(script, "figure_of", lambda columns: axes.append(figure_of(columns)) or axes[-1])
    script.draw_scores(runs, tmp_path / "scores.png", attention=True)
    (scores,) = axes[0][1]
    assert scores.get_title(loc="left") == "attention, found"
    assert [float(line.get_xdata()[0]) for line in scores.get_lines()] == [0.7, 0.7, 0.4]


def test_scores_are_drawn_as_asked_and_one_that_is_no_headline_is_refused(script):
    headlines = [{"metric": f"val/{name}"} for name in ("mse", "psnr", "ssim", "fg_ari/video/decoder")]
    assert script.chosen(headlines, ()) == headlines[:3]
    assert script.chosen(headlines, ["fg_ari/video/decoder", "mse"]) == [headlines[3], headlines[0]]
    with pytest.raises(SystemExit, match="no headline 'iou'; they have mse, psnr, ssim"):
        script.chosen(headlines, ["iou"])


@pytest.mark.parametrize(
    ("point", "label"),
    [
        ("config=movi_like,lr=0.002,variant=PSB,seed=0-0123abcd", "movi_like, PSB"),
        ("config=PSB,num_frames=12,seed=0-0123abcd", "PSB, num_frames 12"),
        ("lr=0.001,variant=T5-buckets,seed=0-0123abcd", "T5-buckets"),
        ("core=PSB,seed=0-0123abcd", None),
    ],
)
def test_a_point_is_called_by_its_configuration_and_variant(script, point, label):
    import draw_cores

    assert draw_cores.label_of(point) == label


def test_a_folder_without_finished_runs_says_so(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["draw_training.py", str(tmp_path)])
    assert script.main() == 1
    assert "no finished run" in capsys.readouterr().err


@pytest.mark.parametrize(("frames", "scale"), [((1, 2, 3), "linear"), ((1, 4, 400), "log")])
def test_errors_over_a_horizon_stand_at_their_frames(script, monkeypatch, tmp_path, frames, scale):
    import draw_cores

    keys = {f"val/{name}/step_{frame:03}": frame / 400 for name in ("rollout_mse", "rollout_ssim") for frame in frames}
    baselines = {key.replace("rollout_mse", "baseline/rollout_mse/black"): 0.1 for key in keys if "mse" in key}
    run = tmp_path / "core=ConvS5,seed=0-0123abcd"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"state": "finished"}))
    task = {"class_path": "VideoPrediction", "init_args": {"core": {"class_path": "ConvS5"}}}
    (run / "config.yaml").write_text(json.dumps({"model": task, "seed_everything": 0}))
    (run / "metrics.jsonl").write_text(json.dumps({"step": 1, "val/loss": 0.5, **keys, **baselines}))
    drawn = []
    figure_of = draw_cores.figure_of
    monkeypatch.setattr(draw_cores, "figure_of", lambda columns: drawn.append(figure_of(columns)) or drawn[-1])
    draw_cores.draw_horizon_of(draw_cores.runs_below(tmp_path), tmp_path / "horizon.png")
    for axis in drawn[0][1]:
        assert axis.get_xscale() == scale
        assert tuple(axis.lines[0].get_xdata()) == frames
