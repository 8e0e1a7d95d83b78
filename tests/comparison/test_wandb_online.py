"""A project of Weights & Biases as runs, through a stand-in for its server."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slotbench.comparison.records import ComparisonError
from slotbench.comparison.wandb.online import parse_address, read_wandb


@dataclass
class FakeRun:
    id: str
    core: str = "RIM"
    state: str = "finished"
    name: str | None = "balls-1"
    group: str | None = "cores"
    job_type: str = "train"
    tags: list[str] = field(default_factory=lambda: ["balls"])
    created_at: str = "2026-01-01T00:00:00Z"
    url: str = "https://wandb.ai/team/bench/runs/a"
    rows: list[dict[str, Any]] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        core = {"class_path": self.core, "init_args": {"num_slots": 4}}
        return {"model": {"class_path": "VideoPrediction", "init_args": {"core": core}}, "seed_everything": 0}

    @property
    def summary_metrics(self) -> dict[str, Any]:
        picture = {"_type": "image-file", "width": 4}
        return {
            "val/loss": 0.5,
            "_step": 12,
            "trainer/global_step": 10,
            "epoch": 1,
            "pictures/x": picture,
            "on": "NaN",
        } | {
            "val/score": {"max": 0.9, "last": 0.7},
            "parameters": {"total": 436},
        }

    def scan_history(self, page_size: int = 1000) -> Iterator[dict[str, Any]]:
        self.pages.append(page_size)
        if not self.rows:
            raise OSError("connection refused")
        yield from self.rows


@dataclass
class FakeApi:
    found: list[FakeRun] = field(default_factory=list)
    error: Exception | None = None
    asked: dict[str, Any] = field(default_factory=dict)

    def runs(self, path: str, filters: dict[str, Any], per_page: int, lazy: bool = True) -> Iterator[FakeRun]:
        self.asked = {"path": path, "filters": filters, "lazy": lazy}
        if self.error:
            raise self.error
        return iter(self.found)


def test_a_run_of_a_project_is_a_record() -> None:
    api = FakeApi([FakeRun("a")])
    (run,) = read_wandb("team/bench", api)
    assert api.asked == {"path": "team/bench", "filters": {}, "lazy": False}
    assert (run.id, run.name, run.source, run.state) == ("a", "balls-1", api.found[0].url, "finished")
    assert run.settings == {
        "model": "VideoPrediction",
        "model.core": "RIM",
        "model.core.num_slots": 4,
        "seed_everything": 0,
    }
    assert run.summary["val/loss"] == 0.5
    assert set(run.summary) == {"val/loss", "on", "val/score"}
    assert (run.summary["val/score"], run.best) == (0.7, {"val/score": 0.9})
    assert run.info["parameters"] == {"total": 436}
    assert (run.info["group"], run.info["step"], run.info["tags"]) == ("cores", 10, ["balls"])


def test_curves_are_asked_for_only_when_they_are_needed() -> None:
    rows = [{"_step": step, "trainer/global_step": 2 * step, "train/loss": float(step)} for step in range(50)]
    rows[10]["val/loss"] = 0.3
    fake = FakeRun("a", rows=rows)
    (run,) = read_wandb("team/bench", FakeApi([fake]))
    assert fake.pages == []
    curves = run.curves(5)
    assert fake.pages == [10_000]
    steps, values = curves["train/loss"]
    assert (len(steps), steps[0], steps[-1], values[-1]) == (5, 0, 98, 49.0)
    # one row among many is not lost
    assert [part.tolist() for part in curves["val/loss"]] == [[20], [0.3]]


def test_a_step_that_was_logged_twice_counts_once() -> None:
    rows = [{"_step": index, "trainer/global_step": step, "loss": index} for index, step in enumerate([0, 1, 2, 1, 2])]
    (run,) = read_wandb("team/bench", FakeApi([FakeRun("a", rows=rows)]))
    assert [part.tolist() for part in run.curves(9)["loss"]] == [[0, 1, 2], [0.0, 3.0, 4.0]]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("running", "running"), ("crashed", "killed"), ("killed", "interrupted"), ("failed", "failed"), ("x", "unknown")],
)
def test_states_are_told_in_our_words(theirs: str, ours: str) -> None:
    (run,) = read_wandb("team/bench", FakeApi([FakeRun("a", state=theirs)]))
    assert run.state == ours


def test_filters_go_to_the_server_and_settings_are_compared_here() -> None:
    api = FakeApi([FakeRun("a"), FakeRun("b", core="SlotSSM"), FakeRun("c", core="PSB")])
    found = read_wandb("team/bench?group=cores&tag=balls&tag=mnist&state=killed&model.core=RIM&model.core=PSB", api)
    assert [run.id for run in found] == ["a", "c"]
    assert api.asked["filters"] == {
        "group": {"$in": ["cores"]},
        "tags": {"$in": ["balls", "mnist"]},
        "state": {"$in": ["crashed"]},
    }
    assert [run.id for run in read_wandb("team/bench?model.core.num_slots=4&seed_everything=1", api)] == []


def test_the_address_of_a_page_will_do() -> None:
    where = parse_address("https://wandb.ai/team/bench/runs/abc?group=my%20grid")
    assert (where.path, where.filters) == ("team/bench", {"group": {"$in": ["my grid"]}})


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("bench", "'bench' is no project of W&B; expected wandb:ENTITY/PROJECT"),
        ("a/b/c", "'a/b/c' is no project"),
        ("a/b?grup=x", "no filter 'grup' for W&B runs; expected group, state, tag"),
        ("a/b?state=done", "no run is 'done'; expected finished, running, interrupted, failed, killed"),
    ],
)
def test_an_address_that_is_none_is_explained(address: str, said: str) -> None:
    with pytest.raises(ComparisonError) as refused:
        read_wandb(address, FakeApi())
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("Could not find project bench"), "W&B has no project team/bench, or does not show it to this key"),
        (RuntimeError("HTTP 403: permission denied"), "W&B does not let this key read team/bench"),
        (OSError("Failed to resolve host\nmore"), "cannot read team/bench from W&B: Failed to resolve host; is there"),
    ],
)
def test_what_the_server_refuses_is_one_sentence(error: Exception, said: str) -> None:
    with pytest.raises(ComparisonError) as refused:
        read_wandb("team/bench", FakeApi(error=error))
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_a_network_lost_between_table_and_curves_is_one_sentence() -> None:
    (run,) = read_wandb("team/bench", FakeApi([FakeRun("a")]))
    with pytest.raises(ComparisonError, match="connection refused"):
        run.curves(10)


def test_without_a_key_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ComparisonError, match=r"there is no W&B key .* type `wandb login` or set WANDB_API_KEY"):
        read_wandb("team/bench")


def test_the_stand_in_is_like_wandb() -> None:
    from wandb.apis.public import Api, Run

    def parameters(function: Any) -> set[str]:
        return set(inspect.signature(function).parameters)

    assert {"path", "filters", "per_page"} <= parameters(Api.runs)
    assert {"page_size"} <= parameters(Run.scan_history)
    for name in ("id", "name", "state", "url"):
        assert isinstance(inspect.getattr_static(Run, name), property)
