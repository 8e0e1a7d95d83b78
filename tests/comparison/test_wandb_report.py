"""The report that W&B is sent, built by its own library and held back before the network."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import wandb
from wandb.sdk.lib import wbauth

from slotbench.comparison.records import Comparison, ComparisonError, RunRecord
from slotbench.comparison.table import compare
from slotbench.comparison.wandb.workspaces import config_key, make_report, make_workspace

# of the library's own making, as it is imported
pytestmark = pytest.mark.filterwarnings("ignore:[\\s\\S]*Pydantic:DeprecationWarning")

KEY = "0123456789" * 4


def run(core: str, seed: int, **info: Any) -> RunRecord:
    settings = {"seed_everything": seed, "model": "VideoPrediction", "model.core": core, "model.core.num_slots": 4}
    loss = {"RIM": 0.5, "PSB": 0.2}[core] + seed / 100
    return RunRecord(f"{core}{seed}", core, "here", "finished", settings, {"val/loss": loss}, info=info)


def comparison(**info: Any) -> Comparison:
    runs = [run(core, seed, **info) for core in ("RIM", "PSB") for seed in (0, 1, 2)]
    return compare(runs, metrics=["val/loss"], title="Cores", command="slotbench compare runs/cores")


class FakeService:
    app_url = "https://wandb.ai"

    def __init__(self) -> None:
        self.sent: dict[str, Any] = {}

    def execute_graphql(self, query: Any, variables: dict[str, Any]) -> dict[str, Any]:
        if "spec" not in variables:
            return {"project": {"internalId": "77"} if variables["projectName"] == "bench" else None}
        self.sent = variables
        project = {"name": "bench", "entityName": "team"}
        view = {"id": "abc", "name": "n", "displayName": "Cores", "spec": variables["spec"], "project": project}
        return {"upsertView": {"view": view}}


class FakeApi:
    def __init__(self, service: FakeService) -> None:
        self._service_api = service

    def projects(self, entity: str) -> list[Any]:
        return [type("Project", (), {"name": "bench"})]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    pytest.importorskip("wandb_workspaces")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    service = FakeService()
    monkeypatch.setattr("wandb_workspaces.reports.v2.interface._get_api", lambda: FakeApi(service))
    monkeypatch.setattr("wandb.Api", lambda: FakeApi(service))
    return service


def test_a_report_has_the_table_and_every_metric_grouped_as_the_rows_are(service: FakeService) -> None:
    address = make_report(comparison(group="cores", wandb_id="x"), "team/bench")
    assert address == "https://wandb.ai/team/bench/reports/Cores--abc"
    spec = json.loads(service.sent["spec"])
    markdown, grid = (block for block in spec["blocks"] if block["type"] != "paragraph")
    assert "| PSB | " in markdown["content"]
    assert "slotbench compare runs/cores" in markdown["content"]
    (runs,) = grid["metadata"]["runSets"]
    (condition,) = runs["filters"]["filters"]
    assert (condition["key"]["name"], condition["op"], condition["value"]) == ("group", "=", "cores")
    assert [key["name"] for key in runs["grouping"]] == ["model.value.init_args.core.class_path"]
    panels = grid["metadata"]["panelBankSectionConfig"]["panels"]
    assert [panel["viewType"] for panel in panels] == ["Run History Line Plot", "Bar Chart"]
    assert all(panel["config"]["metrics"] == ["val/loss"] for panel in panels)
    assert len({(panel["layout"]["x"], panel["layout"]["y"]) for panel in panels}) == 2


def test_runs_without_a_common_group_are_picked_by_their_ids(service: FakeService) -> None:
    make_report(comparison(project="bench"), "team/bench")
    grid = next(block for block in json.loads(service.sent["spec"])["blocks"] if block["type"] == "panel-grid")
    (condition,) = grid["metadata"]["runSets"][0]["filters"]["filters"]
    assert condition["key"]["name"] == "name"
    assert sorted(condition["value"]) == ["PSB0", "PSB1", "PSB2", "RIM0", "RIM1", "RIM2"]


def test_the_same_as_a_workspace(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []

    def upsert(view: Any) -> dict[str, Any]:
        saved.append(view)
        return {"upsertView": {"view": {"name": "nw-abc-v", "id": "1"}}}

    monkeypatch.setattr("wandb_workspaces.workspaces.internal.upsert_view2", upsert)
    assert make_workspace(comparison(group="cores", wandb_id="x"), "team/bench") == (
        "https://wandb.ai/team/bench?nw=abc"
    )
    spec = json.loads(saved[0].spec.model_dump_json(by_alias=True, exclude_none=True))["section"]
    assert [key["name"] for key in spec["runSets"][0]["grouping"]] == ["model.value.init_args.core.class_path"]
    assert [section["name"] for section in spec["panelBankConfig"]["sections"]] == ["Compared"]


def test_a_setting_is_found_in_the_nested_configuration() -> None:
    settings = {
        "data": "BouncingBalls",
        "data.rule": "earliest",
        "model": "T",
        "model.core": "RIM",
        "model.core.gate": "my_package.Gate",
        "model.core.num_slots": 4,
        "model.weights.balls": 2,
        "trainer.max_steps": 10,
    }
    runs = [RunRecord("a", "a", "", "finished", settings, {})]
    assert {key: config_key(key, runs) for key in settings} == {
        "data": "data.class_path",
        "data.rule": "data.init_args.rule",
        "model": "model.class_path",
        "model.core": "model.init_args.core.class_path",
        "model.core.gate": "model.init_args.core.init_args.gate.class_path",
        "model.core.num_slots": "model.init_args.core.init_args.num_slots",
        "model.weights.balls": "model.init_args.weights.balls",
        "trainer.max_steps": "trainer.max_steps",
    }


def test_runs_that_were_never_mirrored_are_refused(service: FakeService) -> None:
    with pytest.raises(ComparisonError, match=r"W&B knows none of these runs: .*wandb sync"):
        make_report(comparison(group="cores"), "team/bench")


def test_a_project_that_is_not_there_is_said(service: FakeService) -> None:
    with pytest.raises(ComparisonError, match=r"did not take the report for team/other: .*not found"):
        make_report(comparison(wandb_id="x"), "team/other")


def test_without_a_key_nothing_is_sent(service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    wandb.teardown()  # it reads its settings once per process, and keeps the key that it has found
    wbauth.unauthenticate_session(update_settings=True)
    with pytest.raises(ComparisonError, match=r"no W&B report: there is no W&B key .*wandb login"):
        make_report(comparison(wandb_id="x"), "team/bench")
    assert service.sent == {}


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    with pytest.raises(ComparisonError, match=r"pip install 'slotbench\[wandb-report\]'"):
        make_report(comparison(wandb_id="x"), "team/bench")
