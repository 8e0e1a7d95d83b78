"""From a grid file to its points."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from slotbench.errors import FileError, UserError
from slotbench.grids.expansion import Grid, expand
from slotbench.grids.grid_file import read_grid_file, short_keys

BASE = "model: {class_path: TinyTask, init_args: {core: {class_path: TinyCore}}}\n"


def grid_of(folder: Path, content: dict | str, extra: dict | None = None) -> Grid:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "base.yaml").write_text(BASE)
    text = content if isinstance(content, str) else yaml.safe_dump({"base": "base.yaml", **content}, sort_keys=False)
    (folder / "grid.yaml").write_text(text)
    return expand(read_grid_file(folder / "grid.yaml"), extra=extra)


def refusal(folder: Path, content: dict | str) -> str:
    with pytest.raises((UserError, FileError)) as caught:
        grid_of(folder, content)
    return str(caught.value)


@pytest.fixture
def overlays(tmp_path: Path) -> Path:
    for name in ("SlotSSM", "RIM"):
        (tmp_path / f"{name}.yaml").write_text(f"model: {{init_args: {{core: {{class_path: {name}}}}}}}\n")
    return tmp_path


def test_points_are_a_product_and_a_seed_is_finished_before_the_next_begins(tmp_path):
    grid = grid_of(tmp_path, {"product": {"model.core.num_slots": [2, 4], "data.size": [1, 2]}, "seeds": [5, 3]})
    found = [tuple(point.labels[key] for key in ("seed", "num_slots", "size")) for point in grid.points]
    assert found == list(itertools.product("53", "24", "12"))


def test_alternatives_may_say_what_others_do_not_or_replace_it(tmp_path):
    alternatives = [{"label": "mixer", "model.core.mixer": True, "trainer.max_steps": 50}, {"label": "plain"}]
    mixer, plain = grid_of(tmp_path, {"settings": {"trainer.max_steps": 10}, "list": alternatives}).points
    assert (
        mixer.labels["variant"], mixer.settings["trainer.max_steps"], mixer.settings["model.core.mixer"]
    ) == ("mixer", 50, True)  # fmt: skip
    assert (plain.labels["variant"], plain.settings["trainer.max_steps"]) == ("plain", 10)
    assert "model.core.mixer" not in plain.settings


def test_zipped_axes_vary_together_and_make_one_axis(tmp_path):
    grid = grid_of(tmp_path, {"product": {"data.a": [0, 1]}, "zip": {"data.b": [6, 11], "data.c": [16, 8]}})
    found = [(p.settings["data.a"], p.settings["data.b"], p.settings["data.c"]) for p in grid.points]
    assert found == [(0, 6, 16), (0, 11, 8), (1, 6, 16), (1, 11, 8)]


def test_unlabelled_alternatives_are_known_by_their_settings(tmp_path):
    grid = grid_of(tmp_path, {"list": [{"model.core.mixer": True}, {"model.core.depth": 3}]})
    assert [dict(p.labels) for p in grid.points] == [{"mixer": "true", "seed": "0"}, {"depth": "3", "seed": "0"}]


@pytest.mark.parametrize(
    "entry", [{"model.core.num_slots": 8, "config": "RIM"}, {"num_slots": 8, "config": "RIM.yaml"}]
)
def test_points_are_excluded_by_value_or_by_label(overlays, entry):
    product = {"model.core.num_slots": [4, 8], "config": ["SlotSSM.yaml", "RIM.yaml"]}
    grid = grid_of(overlays, {"product": product, "exclude": [entry]})
    found = [(p.labels["num_slots"], p.labels["config"]) for p in grid.points]
    assert found == [("4", "SlotSSM"), ("4", "RIM"), ("8", "SlotSSM")]


def test_no_configuration_file_is_a_value_too(overlays):
    points = grid_of(overlays, {"product": {"config": [None, "RIM.yaml"]}}).points
    assert [point.labels["config"] for point in points] == ["none", "RIM"]
    files = [[Path(word).name for word in point.arguments if word.endswith(".yaml")] for point in points]
    assert files == [["base.yaml"], ["base.yaml", "RIM.yaml"]]


def test_a_component_comes_before_its_arguments_whatever_the_order_of_the_file(tmp_path):
    product = {"model.core.num_slots": [2], "model.core": ["RIM"]}
    (point,) = grid_of(tmp_path, {"settings": {"model.core.dim": 8}, "product": product}).points
    assert point.arguments[2:] == (
        "--model.core", "RIM", "--model.core.dim", "8", "--model.core.num_slots", "2", "--seed_everything", "0",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "argument", "label"),
    [
        (1e-3, "0.001", "0.001"),
        (True, "true", "true"),
        ([0.9, 0.95], "[0.9, 0.95]", "0.9 0.95"),
        (
            {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
            '{"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}',
            "SGD lr 0.1",
        ),
    ],
)
def test_values_are_handed_over_as_they_are_typed(tmp_path, value, argument, label):
    (point,) = grid_of(tmp_path, {"product": {"model.x": [value]}}).points
    assert point.arguments[3] == argument
    assert point.labels["x"] == label


def test_class_paths_and_init_args_may_be_spelled_out(tmp_path):
    long = grid_of(tmp_path, {"product": {"model.init_args.core.init_args.num_slots": [2]}})
    short = grid_of(tmp_path, {"product": {"model.core.num_slots": [2]}})
    assert long.points == short.points


def test_settings_of_the_command_line_make_other_points(tmp_path):
    content = {"settings": {"trainer.max_steps": 10}, "product": {"data.size": [1, 2]}}
    plain, short = grid_of(tmp_path, content), grid_of(tmp_path, content, {"trainer.max_steps": 2})
    assert {p.settings["trainer.max_steps"] for p in short.points} == {2}
    assert not {p.id for p in plain.points} & {p.id for p in short.points}
    assert short.extra == ("--trainer.max_steps", "2")


def test_the_id_says_what_varies_and_hashes_what_decides(tmp_path):
    content = {"product": {"model.core.num_slots": [2, 4]}}
    before = [p.id for p in grid_of(tmp_path, content).points]
    assert re.fullmatch(r"num_slots=2,seed=0-[0-9a-f]{8}", before[0])
    commented = [p.id for p in grid_of(tmp_path, "# words\n" + yaml.safe_dump({"base": "base.yaml", **content})).points]
    assert commented == before
    other = [p.id for p in grid_of(tmp_path, {**content, "settings": {"data.size": 3}}).points]
    assert not set(other) & set(before)


def test_another_base_or_another_overlay_is_another_point(overlays):
    content = {"product": {"config": ["RIM.yaml", "SlotSSM.yaml"]}}
    before = [p.fingerprint for p in grid_of(overlays, content).points]
    (overlays / "RIM.yaml").write_text("model: {init_args: {core: {class_path: RIM, init_args: {top_k: 2}}}}\n")
    after = [p.fingerprint for p in grid_of(overlays, content).points]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


def test_ids_stay_the_same_when_values_are_added(tmp_path):
    before = {p.id for p in grid_of(tmp_path, {"product": {"data.size": [1, 2]}}).points}
    after = {p.id for p in grid_of(tmp_path, {"product": {"data.size": [3, 1, 2]}, "seeds": 2}).points}
    assert before < after


def test_a_key_that_ends_in_a_word_of_the_grids_own_keeps_more():
    assert short_keys(["data.seed", "model.label", "a.variant"]) == {
        key: key for key in ("data.seed", "model.label", "a.variant")
    }


@pytest.mark.parametrize(
    ("base", "used"),
    [
        ("part over", "part over"),
        ("part whole", "whole"),
        ("whole part", "whole part"),
        ("part whole over", "whole over"),
        ("whole part whole over", "whole over"),
    ],
)
def test_files_before_a_whole_experiment_are_not_in_the_arguments_of_a_point(tmp_path, base, used):
    (tmp_path / "part.yaml").write_text("model: {init_args: {gain: 2}}\ndata: {init_args: {size: 3}}\n")
    (tmp_path / "whole.yaml").write_text("model: A\ndata: {class_path: B}\n")
    (tmp_path / "over.yaml").write_text("model: C\n")
    files = [f"{name}.yaml" for name in base.split()]
    (point,) = grid_of(tmp_path, {"base": files, "product": {"data.size": [1]}}).points
    found = [value for flag, value in itertools.pairwise(point.arguments) if flag == "--config"]
    assert " ".join(Path(file).stem for file in found) == used


NAMES = st.sampled_from(
    ["model.core.num_slots", "model.core.dim", "model.decoder.dim", "data.size", "trainer.max_steps"]
)
VALUES = st.lists(
    st.one_of(st.integers(-9, 99), st.booleans(), st.floats(-2, 2), st.text("ab/ :é-=", min_size=1, max_size=60)),
    min_size=1,
    max_size=3,
    unique_by=lambda value: (type(value) is bool, str(value).strip(), value),
)
PRODUCTS = st.dictionaries(NAMES, VALUES, max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("grids")


@settings(max_examples=25)
@given(product=PRODUCTS, seeds=st.integers(1, 3))
def test_a_product_has_as_many_points_as_its_axes_multiply_to(folder, product, seeds):
    grid = grid_of(folder, {"product": product, "seeds": seeds})
    assert len(grid.points) == math.prod(map(len, product.values())) * seeds
    ids = [p.id for p in grid.points]
    assert len(set(ids)) == len(ids)
    for point in grid.points:
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+=,@-]*", point.id)
        assert len(point.id) <= 120


@settings(max_examples=25)
@given(product=PRODUCTS, data=st.data())
def test_ids_do_not_depend_on_the_order_of_the_file(folder, product, data):
    shuffled = dict(data.draw(st.permutations(list(product.items()))))
    one, other = grid_of(folder, {"product": product}), grid_of(folder, {"product": shuffled})
    assert {p.id for p in one.points} == {p.id for p in other.points}
    assert {p.id: sorted(p.arguments) for p in one.points} == {p.id: sorted(p.arguments) for p in other.points}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"porduct": {"data.size": [1]}}, ["unknown field `porduct`", "did you mean product?"]),
        ({"base": "bsae.yaml"}, ["no file", "bsae.yaml", "did you mean", "base.yaml"]),
        ({"zip": {"data.a": [1, 2], "data.b": [1]}}, ["data.a has 2, data.b has 1"]),
        ({"product": {"data.a": []}}, ["data.a has no values"]),
        ({"product": {"data.a": [1]}, "zip": {"data.a": [2]}}, ["data.a is given twice"]),
        ({"product": {"data.a": [1, 2]}, "exclude": [{"data.a": 3}]}, ["excludes nothing", '{"data.a":3}']),
        ({"product": {"data.a": [1, 1]}}, ["two points are the same run"]),
        ({"list": [{"label": "x"}, {"label": "x", "data.a": 1}]}, ["same label"]),
        ({"product": {"modle.core": ["RIM"]}}, ["no setting modle.core", "did you mean model?"]),
        ({"product": {"config": ["gone.yaml"]}}, ["no file", "gone.yaml"]),
        ({"seeds": [1, 1]}, ["these seeds cannot be"]),
        (BASE, ["is an experiment, not a grid"]),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_given(tmp_path, content, words):
    said = refusal(tmp_path, content)
    for word in words:
        assert word in said


def test_points_start_from_those_of_another_grid_that_agree_with_them(tmp_path):
    (tmp_path / "first.yaml").write_text("base: base.yaml\nproduct: {model.core: [A, B]}\nseeds: 2\n")
    content = {"product": {"model.core": ["A", "B"], "data.size": [1, 2]}, "seeds": 2, "init_from": "first.yaml"}
    grid = grid_of(tmp_path, content)
    first = {point.id: point for point in expand(read_grid_file(tmp_path / "first.yaml")).points}
    for point in grid.points:
        folder, _, start = point.start.partition("/")
        assert folder == "first"
        assert first[start].labels == {key: point.labels[key] for key in ("core", "seed")}
    before = {point.fingerprint for point in grid.points}
    (tmp_path / "first.yaml").write_text(
        "base: base.yaml\nproduct: {model.core: [A, B]}\nsettings: {data.x: 1}\nseeds: 2\n"
    )
    assert not before & {point.fingerprint for point in grid_of(tmp_path, content).points}
    assert "0 points" in refusal(tmp_path, {**content, "seeds": 3})


def test_expansion_needs_no_torch(tmp_path):
    grid_of(tmp_path, {"product": {"data.size": [1, 2]}})
    program = (
        "import sys; from slotbench.cli import run; "
        "codes = run(['grid', 'show', 'grid.yaml']); "
        "assert codes == 1, codes; assert 'torch' not in sys.modules; assert 'lightning' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "2 points, 2 waiting" in done.stdout
    assert not (tmp_path / "runs").exists()
