"""The plots, settings and images of a comparison's page, used in a real browser."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from page_comparisons import CURVES, ERROR, SCORE, made_up


def test_curves_of_other_metrics_scales_and_hours(open_page, comparison):
    tab = open_page(comparison)
    page = tab.page
    page.click("#curves-metrics summary")
    page.locator("#curves-metrics label", has_text="val/other").click()
    page.keyboard.press("Escape")
    assert page.locator("#curves figure").count() == 4
    name = "curves train/loss"

    def first_line() -> tuple[list[float], list[float]]:
        lines = tab.layers(name)["lines"]
        at = lines["row"].index(0)
        return lines["xs"][at], lines["ys"][at]

    steps, recorded = first_line()
    page.select_option("#curves-scale", "log")
    assert page.evaluate(SCALE, name) == "LogScale"
    page.select_option("#curves-smoothing", "0.3")
    assert first_line()[0] == steps
    smooth = first_line()[1]
    assert np.abs(np.diff(smooth)).sum() < np.abs(np.diff(recorded)).sum()
    page.select_option("#curves-over", "hours")
    assert first_line()[1] == pytest.approx(smooth)
    assert first_line()[0] == pytest.approx([6 * step / 3600 for step in steps], rel=1e-3)
    page.check("#curves-seeds")
    assert [width for width in tab.layers(CURVES)["lines"]["width"] if width == 1] == [1] * 27
    assert len(tab.layers(CURVES)["bands"]["row"]) == 9
    page.select_option("#curves-band", "none")
    assert tab.layers(CURVES)["bands"]["row"] == []
    assert tab.layers(CURVES)["names"]["text"] == ["k-means"]  # nothing is zero on a logarithmic scale
    page.uncheck("#curves-baselines")
    assert -1 not in tab.layers(CURVES)["lines"]["row"]


SCALE = """(name) => Bokeh.documents.flatMap((drawn) => drawn.roots()).filter((root) => root.name === name)
  .map((root) => root.y_scale.type)[0]"""


def test_the_band_is_the_spread_of_the_seeds_and_the_line_their_mean(open_page):
    comparison = made_up(cores=1, slots=(4,), seeds=3, points=40)
    tab = open_page(comparison)
    values = np.stack([run.curves(400)[SCORE][1] for run in comparison.runs])
    layers = tab.layers(CURVES)
    assert layers["lines"]["ys"][-1] == pytest.approx(values.mean(0), rel=1e-4)
    spread = values.std(0, ddof=1)
    edges = [*values.mean(0) + spread, *(values.mean(0) - spread)[::-1]]
    assert layers["bands"]["ys"][0] == pytest.approx(edges, rel=1e-3, abs=1e-4)
    tab.page.select_option("#curves-band", "range")
    edges = [*values.max(0), *values.min(0)[::-1]]
    assert tab.layers(CURVES)["bands"]["ys"][0] == pytest.approx(edges, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("share", ["0.05", "0.15", "0.3"])
def test_smoothing_keeps_straight_lines_and_takes_the_noise_from_the_ends_too(open_page, share):
    comparison = made_up(cores=2, slots=(4,), seeds=1, points=80)
    steps = np.cumsum(np.tile([10, 20, 30, 5], 20))
    noise = np.where(np.arange(80) % 2, 0.1, -0.1)
    for run, extra in zip(comparison.runs, (0.0, noise), strict=True):
        curves = {"train/loss": (steps, 3 - 0.001 * steps + extra)}
        object.__setattr__(run, "curves", lambda limit, curves=curves: curves)
    tab = open_page(comparison)
    tab.page.select_option("#curves-smoothing", share)
    lines = tab.layers("curves train/loss")["lines"]
    straight, noisy = (np.array(lines["ys"][lines["row"].index(row)]) for row in (0, 1))
    assert straight == pytest.approx(3 - 0.001 * steps, abs=1e-3)
    assert np.abs(noisy - straight).max() < 0.09
    assert np.abs(noisy - straight)[[0, -1]].max() < (0.09 if share == "0.05" else 0.06)


def test_names_of_baselines_do_not_lie_on_one_another(open_page):
    comparison = made_up(cores=2, slots=(4, 16), seeds=1)
    score, error = comparison.metrics
    near = {f"baseline {n}": 0.46 + 0.001 * n for n in range(4)} | {"same": 0.46, "top": 0.62}
    comparison = replace(comparison, metrics=[replace(score, baselines=near), error])
    tab = open_page(comparison)
    tab.page.check("#axis-baselines")
    tab.page.wait_for_timeout(500)
    for plot in (CURVES, "axis"):
        names = tab.layers(plot)["names"]
        tops = [tab.page.evaluate(HEIGHT, [plot, y]) + by for y, by in zip(names["y"], names["offset"], strict=True)]
        assert len(tops) == 6
        assert np.diff(sorted(tops)).min() >= 12
        assert sorted(tops) == tops[::-1]  # in the order of their lines, the lowest first


# of a value, in pixels from the upper end of a plot
HEIGHT = """([name, y]) => {
  const [plot] = Bokeh.documents.flatMap((drawn) => drawn.roots()).filter((root) => root.name === name);
  const view = [...Bokeh.index.roots].find((view) => view.model === plot);
  return view.frame.y_scale.compute(y);
}"""


def test_a_curve_is_read_off_under_the_pointer(open_page):
    comparison = made_up(cores=1, slots=(4,), seeds=3, points=40)
    tab = open_page(comparison)
    plot = tab.page.locator(f"#curves figure[data-metric='{SCORE}'] .plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    said = tab.point_at(box["x"] + box["width"] - 45, box["y"] + 60)
    last = [run.curves(400)[SCORE][1][-1] for run in comparison.runs]
    assert "step 370" in said
    assert f"{sum(last) / 3:.4g}"[:5] in said
    assert "(3)" in said
    assert "k-means" in said
    tab.page.mouse.move(0, 0)
    tab.page.locator("#tip").wait_for(state="hidden")


def test_a_metric_against_another_axis(open_page, comparison):
    tab = open_page(comparison)
    page = tab.page
    # three cores over three numbers of slots
    assert page.input_value("#axis-x") == "key model.core.num_slots"
    assert page.input_value("#axis-group") == "model.core"
    lines = tab.layers("axis")["lines"]
    assert [xs for xs in lines["xs"] if len(xs) == 3] == [[4, 8, 16]] * 3
    means = {row.label: row.cells for row in comparison.rows}

    def marks() -> list[float]:
        points = tab.layers("axis")["points"]
        return [y for y, size in zip(points["y"], points["size"], strict=True) if size == 11]

    assert sorted(marks()) == pytest.approx(sorted(cells[SCORE].mean for cells in means.values()))
    page.select_option("#axis-y", ERROR)
    assert sorted(marks()) == pytest.approx(sorted(cells[ERROR].mean for cells in means.values()))
    page.select_option("#axis-x", "key model.core")
    page.select_option("#axis-group", "model.core.num_slots")
    lines = tab.layers("axis")["lines"]
    assert [len(xs) for xs in lines["xs"]] == [2] * 9
    names = page.evaluate(NAMES)
    assert set(names) == {"SlotSSM", "OCSlotSSM", "PSB"}
    page.select_option("#axis-x", "parameters")
    page.check("#axis-logX")
    page.check("#axis-baselines")
    assert "black 9" in page.inner_text("#axis-far")
    page.locator("#axis canvas").first.wait_for()
    page.wait_for_timeout(200)
    x, y = page.evaluate(PLACE, [tab.layers("axis")["points"]["x"][-1], tab.layers("axis")["points"]["y"][-1]])
    assert "parameters: " in tab.point_at(x, y)


AXIS = "Bokeh.documents.flatMap((drawn) => drawn.roots()).find((root) => root.name === 'axis')"
NAMES = f"() => [...{AXIS}.below[0].major_label_overrides.values()].map((name) => name.text)"
# of a point in the data, in the window; the plot is scrolled into sight
PLACE = f"""([x, y]) => {{
  const view = Object.values(Bokeh.index).find((view) => view.model === {AXIS})
    ?? [...Bokeh.index.roots].find((view) => view.model === {AXIS});
  document.getElementById("axis").scrollIntoView({{ block: "center" }});
  const box = document.getElementById("axis").getBoundingClientRect();
  const frame = view.frame;
  return [box.left + frame.x_scale.compute(x), box.top + frame.y_scale.compute(y)];
}}"""


def test_settings_that_differ_between_two_rows_and_all(open_page, comparison):
    tab = open_page(comparison)
    page = tab.page
    names = [row.label for row in comparison.rows]
    page.select_option("#settings-left", label="SlotSSM, 4 slots")
    page.select_option("#settings-right", label="PSB, 4 slots")
    keys = page.locator("#settings tbody th")
    assert sorted(keys.all_inner_texts()) == ["model.core", "model.core.of_psb", "model.core.of_slotssm"]
    assert page.locator("#settings td.absent").count() == 2
    page.check("#settings-all")
    rows = dict(zip(keys.all_inner_texts(), page.locator("#settings tbody tr").all_inner_texts(), strict=True))
    assert rows["model.core.num_slots"].split() == ["model.core.num_slots", "4", "4"]
    assert rows["seed_everything"].split("\t")[1:] == ["0 · 1 · 2", "0 · 1 · 2"]
    page.uncheck("#settings-all")
    page.select_option("#settings-right", "all")
    assert page.locator("#settings thead th").all_inner_texts() == ["setting", *names]
    page.fill("#settings-search", "num_slots")
    assert keys.all_inner_texts() == ["model.core.num_slots"]


def test_scores_over_the_length_of_clips_stay_so_over_hours_and_smoothed(open_page, comparison):
    name, lengths, scores = "lengths/mota/decoder", [1, 4, 16], [0.9, 0.5, 0.2]
    for run in comparison.runs:
        curves = run.curves(100) | {name: (np.array(lengths), np.array(scores))}
        object.__setattr__(run, "curves", lambda limit, curves=curves: curves)
    tab = open_page(comparison)
    page = tab.page
    page.click("#curves-metrics summary")
    page.locator("#curves-metrics label", has_text=name).click()
    page.keyboard.press("Escape")
    page.select_option("#curves-over", "hours")
    page.select_option("#curves-smoothing", "0.3")
    lines = tab.layers(f"curves {name}")["lines"]
    assert lines["xs"][lines["row"].index(0)] == lengths
    assert lines["ys"][lines["row"].index(0)] == pytest.approx(scores)
    figure = page.locator(f"#curves figure[data-metric='{name}'] .plot")
    assert "over length of a clip, in training clips" in figure.get_attribute("aria-label")


def test_top1_over_the_frames_since_the_snitch_was_seen_is_drawn_at_once(open_page, comparison):
    name, frames, scores = "absence/top1", [0, 1, 25, 97], [0.9, 0.8, 0.5, 0.2]
    for run in comparison.runs:
        curves = run.curves(100) | {name: (np.array(frames), np.array(scores))}
        object.__setattr__(run, "curves", lambda limit, curves=curves: curves)
        run.summary.update({"val/top1/seen": 0.9, "val/top1/unseen_97+": 0.2})
        run.summary.update({"val/baseline/top1/seen/any cone": 0.1, "val/baseline/top1/unseen_97+/any cone": 0.75})
        run.summary.update({"val/oracle/top1/seen/knows": 1.0, "val/oracle/top1/unseen_97+/knows": 0.9})
        run.summary.update({"val/baseline/top1/seen/far": 40.0, "val/baseline/top1/unseen_97+/far": 41.0})
    tab = open_page(comparison)
    layers = tab.layers(f"curves {name}")
    lines = layers["lines"]
    beside = [at for at, row in enumerate(lines["row"]) if row == -1]
    assert [[lines[part][at] for part in ("xs", "ys", "dash")] for at in beside] == [
        [[0, 97], [0.1, 0.75], [4, 4]],
        [[0, 97], [1.0, 0.9], [1, 4]],
    ]
    assert [layers["names"][part] for part in ("text", "x", "y")] == [
        ["any cone", "oracle: knows"],
        [97, 97],
        [0.75, 0.9],
    ]
    assert (
        tab.page.locator(f"#curves figure[data-metric='{name}'] .far").inner_text() == "Far off this scale: far 40.5."
    )
    assert lines["xs"][lines["row"].index(0)] == frames
    assert lines["ys"][lines["row"].index(0)] == pytest.approx(scores)
    figure = tab.page.locator(f"#curves figure[data-metric='{name}'] .plot")
    assert "over frames since it was last seen" in figure.get_attribute("aria-label")
    tab.page.uncheck("#curves-baselines")
    assert -1 not in tab.layers(f"curves {name}")["lines"]["row"]


def test_images_of_one_name_side_by_side(open_page, comparison):
    tab = open_page(comparison)
    page = tab.page
    assert page.input_value("#media-name") == "clip_0.png"
    assert page.locator("#media-name option").all_inner_texts() == ["clip_0.png", "loss.png"]
    page.select_option("#media-seed", "all")
    images = page.locator("#media img")
    assert images.count() == 27
    page.wait_for_function("[...document.querySelectorAll('#media img')].every((image) => image.naturalWidth === 96)")
    page.select_option("#media-seed", "2")
    assert {caption.split("\n")[-1] for caption in page.locator("#media figcaption").all_inner_texts()} == {"seed 2"}
    images.first.click()
    assert page.locator("#viewer img").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#viewer").is_hidden()


def test_images_without_room_are_named(open_page, comparison):
    tab = open_page(comparison, media_budget=1000)
    total, out = 54, tab.page.locator("#media-notes li")
    tab.page.click("#media-notes summary")
    assert 0 < out.count() < total
    assert f"{out.count()} files of {total} not in this page" in tab.page.inner_text("#media-notes")
    assert "clip_0_latest.png" in out.first.inner_text()
    assert "left out: no room" in tab.page.inner_text("#media")


def test_of_many_rows_the_first_of_the_table_have_curves(open_page):
    comparison = made_up(cores=10, slots=(4, 8, 12, 16), seeds=1)
    tab = open_page(comparison, width=1000)
    assert tab.rows(CURVES) == list(range(10))
    assert "and 30 rows further down the table" in tab.page.inner_text("#curves-legend")
    button = tab.page.locator(f"th[data-column='metric {ERROR}'] button")
    button.click()
    button.click()
    tab.settle()
    assert tab.rows(CURVES) == list(range(30, 40))
    tab.page.select_option("#curves-rows", label="all")
    assert tab.rows(CURVES) == tab.rows("axis", "points") == list(range(40))
