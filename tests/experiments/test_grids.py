"""Every shipped grid: its header, what the parser says to its points, and two steps of them at tiny size.

Of each experiment that the laptop's grids start from one point is trained each time, and another where a grid compares
more; tests/tasks/test_video_prediction.py trains every core. The parser is shown a point of each grid and study that
sets what it has not seen; of each of the papers' grids it is shown one. The slow tests show it all points of these, and
train all of the laptop's and the studies'; all points of all grids are trained by `nox -s grids`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_experiments import tiny_overrides

from slotbench.cli import run
from slotbench.commands.grid.show import problems
from slotbench.config.command_line import resolve
from slotbench.config.tree import config_files
from slotbench.grids.choosing import covering
from slotbench.grids.expansion import Grid, Point, expand
from slotbench.grids.grid_file import read_grid_file
from slotbench.tasks.rollouts.scores import curve_values

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments" / "grids"
GRIDS = sorted(FOLDER.rglob("*.yaml"))
STUDIES = sorted((FOLDER / "studies").glob("*.yaml"))
HEADER = ("Shows:", "Duration:", "Hardware:")
SEED = "seed_everything"
OF_MASKS = {f"val/rollout_{name}" for name in ("acl", "mcl", "acl_shuffled", "mcl_shuffled", "object_share", "mota")}
"""Scores of roll-outs that a decoder without masks has none of."""
LENGTHS = {"model.rollout.context", "model.rollout.horizon", "model.conditions.frame_mask", "model.core.patch"}
"""Settings that do not fit clips and frames of tiny size."""


def name_of(path: Path) -> str:
    return str(path.relative_to(FOLDER))


@cache
def opened(path: Path) -> Grid:
    return expand(read_grid_file(path))


def variants(points: Iterable[Point]) -> list[Point]:
    """One point of those that differ by their seed alone."""
    return list({point.alternatives: point for point in reversed(list(points))}.values())[::-1]


def named_experiment(point: Point) -> Path | None:
    """The whole experiment that the point names beside its grid's base, if it names one."""
    named = point.settings.get("config")
    return ROOT / named if named and "matched" not in Path(named).parts else None


def overlaid_experiment(point: Point) -> Path | None:
    """The experiment that the point names, if it sets nothing else."""
    return named_experiment(point) if set(point.settings) == {"config", SEED} else None


@cache
def some_points() -> dict[Path, list[Point]]:
    """Of each laptop grid its first point; none where another grid of the same base compares all that it does."""
    found: dict[Path, list[Point]] = {}
    seen: dict[Path, set[str]] = {}
    for path in sorted(FOLDER.glob("*.yaml"), key=lambda path: -len(opened(path).file.metrics)):
        file = opened(path).file
        compared = seen.setdefault(file.base[0].resolve(), set())
        found[path] = [] if compared >= set(file.metrics) else opened(path).points[:1]
        compared |= set(file.metrics)
    return found


def told(point: Point) -> set[tuple[str, ...]]:
    """What the parser learns from a point: files and settings, of those that are no names whether they are numbers."""
    words = [word for argument in point.arguments for word in argument.split("=", argument.startswith("--"))]
    pairs = [*zip(words[::2], words[1::2], strict=True)]
    files = tuple(value for flag, value in pairs if flag == "--config")
    settings = ((flag, yaml.safe_load(value)) for flag, value in pairs if flag != "--config")
    kinds = {(files[0], flag, str(value if isinstance(value, str) else type(value))) for flag, value in settings}
    return kinds | {files}


def points_to_parse() -> list[Any]:
    """One that tells the parser something new of those that cover a laptop grid or a study, one of each paper grid."""
    seen = set().union(*(told(point) for points in some_points().values() for point in points))
    left: dict[Path, list[Point]] = {}
    for path in [*sorted(FOLDER.glob("*.yaml")), *STUDIES]:
        points = covering(variants(opened(path).points))
        left[path] = [point for point in points[::-1] if told(point) - seen][:1]
        seen = seen.union(*map(told, left[path]))
    left |= {path: list(opened(path).points[-1:]) for path in sorted((FOLDER / "paper").glob("*.yaml"))}
    return [pytest.param(points, id=name_of(path)) for path, points in left.items() if points]


def others_to_parse() -> list[Any]:
    """All points of the studies and of the papers' grids, one of those that differ by their seed alone."""
    paths = [*STUDIES, *sorted((FOLDER / "paper").glob("*.yaml"))]
    return [pytest.param(variants(opened(path).candidates or opened(path).points), id=name_of(path)) for path in paths]


def other_points(path: Path) -> list[Point]:
    """All but those of `some_points`, and but those that are whole experiments, which test_experiments.py trains."""
    done = {point.id for point in some_points().get(path, [])}
    left = [point for point in variants(opened(path).points) if point.id not in done]
    return [point for point in left if overlaid_experiment(point) is None]


def whole_experiments(path: Path) -> list[Point]:
    return [point for point in variants(opened(path).points) if overlaid_experiment(point) is not None]


def cases(points: Callable[[Path], Iterable[Point]]) -> list[Any]:
    return [pytest.param(path, point, id=f"{name_of(path)}-{point.name}") for path in GRIDS for point in points(path)]


def resolved(arguments: Iterable[str]) -> dict[str, Any]:
    """The complete configuration of a command line of `fit`."""
    config = yaml.safe_load(resolve([*arguments]).yaml())
    assert isinstance(config, dict)
    return config


def value_at(config: Any, key: str) -> Any:
    """The value of a key as it is typed; of a component what it is, without its arguments."""
    for part in key.split("."):
        config = config.get("init_args", config)[part]
    return classes(config)


def classes(value: Any) -> Any:
    """A component, or each of a list of them, without its arguments; any other value as it is."""
    if isinstance(value, list):
        return [classes(one) for one in value]
    return value.get("class_path", value) if isinstance(value, dict) else value


def scores_over_the_horizon(config: dict[str, Any], point: Point) -> set[str]:
    """What a rollout of the true length logs, for that of the tiny one is shorter."""
    set_here = {key.removeprefix("model.rollout."): value for key, value in point.settings.items()}
    rollout = config["model"]["init_args"].get("rollout", {}) | set_here
    curves = {score: [0.0] * rollout.get("horizon", 1) for score in ("mse", "psnr", "ssim")}
    names = {f"val/{name}" for name in curve_values({"": curves}, rollout.get("report_horizons", ()))}
    if config["data"]["class_path"] == "Maze":  # a tiny clip has no pixel that was seen long ago
        ways = ("", "_short_context") if rollout.get("short_context") else ("",)
        names |= {f"val/rollout_{score}{way}/long_memory" for score in ("mse", "psnr") for way in ways}
    return names


def laid_over(base: Any, over: Any) -> Any:
    """A configuration over another one: mappings are filled in, and another class has arguments of its own."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    if over.get("class_path", base.get("class_path")) != base.get("class_path"):
        return over
    return base | {key: laid_over(base.get(key), value) for key, value in over.items()}


def written(point: Point) -> dict[str, Any]:
    """What the files of a point say, and which core; asking the parser would take as long as the training."""
    config: dict[str, Any] = {}
    for flag, value in zip(point.arguments, point.arguments[1:], strict=False):
        if flag == "--config":
            config = laid_over(config, yaml.safe_load(Path(value).read_text()))
    whole = {key: value for key, value in point.settings.items() if isinstance(value, dict) and "class_path" in value}
    for part in {"encoder", "core", "decoder"} & config["model"]["init_args"].keys():
        config["model"]["init_args"][part] = whole.get(f"model.{part}", config["model"]["init_args"][part])
    if (core := config["model"]["init_args"].get("core")) is None:  # a task of a tokenizer alone
        return config
    named = point.settings.get("model.core", core["class_path"])
    if "model.core" not in whole and named != core["class_path"]:
        # another core has none of the arguments of the file's
        own = {k.removeprefix("model.core."): v for k, v in point.settings.items() if k.startswith("model.core.")}
        config["model"]["init_args"]["core"] = {"class_path": named, "init_args": own}
    return config


def check_that_it_trains(path: Path, point: Point, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of the point; what the grid compares has been logged."""
    monkeypatch.setenv("SLOTBENCH_CACHE", str(folder / "cache"))
    # half of the time; test_experiments.py looks at the pictures of every task
    monkeypatch.setattr("slotbench.callbacks.curves.draw_curves", lambda folder: None)
    for method in ("on_validation_batch_end", "on_validation_end"):
        monkeypatch.setattr(f"slotbench.callbacks.media_logger.MediaLogger.{method}", lambda *given: None)
    config = written(point)
    own = {k: v for k, v in point.settings.items() if k.startswith("model.") and k not in LENGTHS}
    overrides = tiny_overrides(config, folder / "data", own)
    assert run(["fit", *point.arguments, *overrides, "--run_dir", str(folder / "run")]) == 0
    assert json.loads((folder / "run" / "result.json").read_text())["step"] == 2
    trained = yaml.safe_load((folder / "run" / "config.yaml").read_text())
    # of a component what it is: its arguments are made small
    own = {key: classes(value) for key, value in own.items()}
    assert {key: value_at(trained, key) for key in own} == own
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    # parts of a horizon are those of the true one
    logged = {name for row in rows for name in row if not re.search("rollout_.*/", name)} | scores_over_the_horizon(
        config, point
    )
    # of one clip a score may have no case to judge
    logged |= {headline["metric"] for headline in json.loads((folder / "run" / "run.json").read_text())["headlines"]}
    if trained["model"]["init_args"].get("decoder", {}).get("class_path", "").endswith("ConcatenationDecoder"):
        logged |= OF_MASKS
    assert set(opened(path).file.metrics) <= logged


@pytest.mark.parametrize("path", GRIDS, ids=name_of)
def test_the_header_says_how_to_run_the_grid_what_it_shows_and_what_it_costs(path):
    said = list(itertools.takewhile(lambda line: line.startswith("#"), path.read_text().splitlines()))
    assert re.fullmatch(r"# [A-Z].*[.]", said[0])
    commands = [line for line in said if line.startswith("#   slotbench ")]
    file = path.relative_to(ROOT).as_posix()
    assert any(line.startswith(f"#   slotbench grid run {file}") for line in commands)
    assert any(line.startswith(f"#   slotbench compare {file}") for line in commands)
    for word in HEADER:
        assert [line for line in said if line.startswith(f"# {word} ")], word
    for named in re.findall(r"\b(?:experiments|docs)/[\w/.-]*\.(?:yaml|py|md)\b", "\n".join(said)):
        assert (ROOT / named).is_file(), named


@pytest.mark.parametrize("path", GRIDS, ids=name_of)
def test_the_header_counts_the_points(path):
    grid = opened(path)
    protocol = grid.file.protocol
    # with a protocol one of the candidates of each variant is reported
    rate = protocol.key if protocol else None
    reported = {
        (point.settings[SEED], *(pair for pair in point.alternatives if pair[0] != rate))
        for point in grid.candidates
        if point.stage == "report"
    }
    count = len(grid.points) + len(reported)
    (said,) = re.findall(r"(\d+) points", path.read_text().partition("base:")[0]) or [str(count)]
    assert int(said) == count


@pytest.mark.parametrize("path", GRIDS, ids=name_of)
def test_a_grid_says_what_it_compares(path):
    assert opened(path).file.metrics


@pytest.mark.parametrize("points", points_to_parse())
def test_the_parser_takes_the_points(points):
    assert problems(points, []) == []


@pytest.mark.slow
@pytest.mark.parametrize("points", others_to_parse())
def test_the_parser_takes_every_point_of_the_larger_grids(points):
    assert problems(points, []) == []


@pytest.mark.parametrize(("path", "point"), cases(lambda path: some_points().get(path, [])))
def test_a_point_trains_two_steps_and_logs_what_its_grid_compares(path, point, tmp_path, monkeypatch):
    check_that_it_trains(path, point, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "point"), cases(other_points))
def test_every_other_point_trains_two_steps_and_logs_what_its_grid_compares(path, point, tmp_path, monkeypatch):
    check_that_it_trains(path, point, tmp_path, monkeypatch)


@pytest.mark.parametrize("path", GRIDS, ids=name_of)
def test_every_point_that_names_a_whole_experiment_is_made_of_that_file_alone(path):
    for point in opened(path).points:
        files = [value for flag, value in itertools.pairwise(point.arguments) if flag == "--config"]
        experiment = named_experiment(point)
        # the files of a point that names none are those of its grid, and what it lays over them
        expected = (
            [experiment]
            if experiment
            else [*opened(path).file.base, *([ROOT / point.settings["config"]] if "config" in point.settings else [])]
        )
        assert [Path(file).resolve() for file in files] == [file.resolve() for file in expected], point.name
        # the parser agrees, were they given after the base
        base = [word for file in opened(path).file.base for word in ("--config", str(file))]
        if experiment:
            assert config_files([*base, *point.arguments]) == config_files(point.arguments)


def test_an_experiment_of_the_same_classes_laid_over_another_leaves_nothing_of_it():
    first, second = (ROOT / "experiments" / "paper" / f"movi_a_{name}.yaml" for name in ("savi", "psb"))
    alone = resolved(["--config", str(second)])
    assert resolved(["--config", str(first), "--config", str(second)]) == alone
    assert resolved(["--config", str(first)])["trainer"]["gradient_clip_val"] == 1.0
    assert alone["trainer"]["gradient_clip_val"] is None


@pytest.mark.slow
@pytest.mark.parametrize(("path", "point"), cases(whole_experiments))
def test_an_experiment_laid_over_another_leaves_nothing_of_it(path, point):
    experiment = overlaid_experiment(point)
    assert experiment is not None
    expected = resolved(["--config", str(experiment), f"--{SEED}", str(point.settings[SEED])])
    assert resolved(point.arguments) == expected
