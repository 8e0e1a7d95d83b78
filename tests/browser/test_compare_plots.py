"""The plots, settings and pictures of a comparison's page, used in a real browser."""

from __future__ import annotations

from page_comparisons import ERROR, SCORE, made_up

LINES = "#curves figure[data-metric='{}'] g.series"


def test_curves_of_other_metrics_scales_and_hours(open_page, comparison):
    tab = open_page(comparison)
    page = tab.page
    page.click("#curve-metrics summary")
    page.locator("#curve-metrics label", has_text="val/other").click()
    page.keyboard.press("Escape")
    assert page.locator("#curves figure").count() == 4
    path = page.locator("#curves figure[data-metric='train/loss'] g.series[data-row='0'] path.line")
    shapes = [path.get_attribute("d")]
    for field, value in (("#curve-scale", "log"), ("#curve-smoothing", "0.3"), ("#curve-over", "hours")):
        page.select_option(field, value)
        shapes.append(path.get_attribute("d"))
    # hours are steps times a constant here: the same picture with another axis
    assert len(set(shapes)) == 3
    assert page.locator("#curves .axis-label").all_text_contents() == ["hours"] * 4
    assert not any("NaN" in shape for shape in shapes)
    page.check("#curve-seeds")
    assert page.locator(f"{LINES.format(SCORE)}[data-row='0'] path.thin").count() == 3
    page.select_option("#curve-band", "none")
    assert page.locator("#curves path.band").count() == 0
    assert page.locator("#curves line.floor").count() > 0
    page.uncheck("#curve-floors")
    assert page.locator("#curves line.floor").count() == 0


def test_a_curve_is_the_mean_over_the_seeds_and_is_read_off(open_page):
    tab = open_page(made_up(cores=1, slots=(4,), seeds=3, points=40))
    figure = tab.page.locator(f"#curves figure[data-metric='{SCORE}']")
    plot = figure.locator("svg.plot")
    plot.focus()
    for _ in range(60):
        plot.press("ArrowRight")
    comparison = made_up(cores=1, slots=(4,), seeds=3, points=40)
    last = [run.curves(400)[SCORE][1][-1] for run in comparison.runs]
    said = tab.page.inner_text("#tip")
    assert "step 370" in said
    assert f"{sum(last) / 3:.4g}"[:5] in said
    assert "(3)" in said
    assert "k-means" in said


def test_a_metric_against_another_axis(open_page, comparison):
    tab = open_page(comparison)
    page = tab.page
    points = page.locator("#axis [data-point]")
    # three cores over three numbers of slots
    assert page.input_value("#axis-x") == "key model.core.num_slots"
    assert page.input_value("#axis-group") == "model.core"
    assert page.locator("#axis path.line").count() == 3
    assert page.locator("#axis .axis-label").text_content() == "num_slots"
    before = points.evaluate_all("nodes => nodes.map((node) => node.getAttribute('transform'))")
    page.select_option("#axis-y", ERROR)
    assert points.evaluate_all("nodes => nodes.map((node) => node.getAttribute('transform'))") != before
    page.select_option("#axis-x", "key model.core")
    page.select_option("#axis-group", "model.core.num_slots")
    assert page.locator("#axis path.line").count() == 0
    assert page.locator("#axis path.bar-line").count() == points.count() == 9
    assert {"SlotSSM", "OCSlotSSM", "PSB"} <= set(page.locator("#axis .tick").all_text_contents())
    page.select_option("#axis-x", "parameters")
    page.check("#axis-log-x")
    page.check("#axis-floors")
    assert "black 9" in page.inner_text("#axis")
    points.first.hover()
    assert "parameters: " in page.inner_text("#tip")


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


def test_pictures_of_one_name_side_by_side(open_page, comparison):
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


def test_pictures_without_room_are_named(open_page, comparison):
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
    drawn = tab.page.locator(LINES.format(SCORE))
    rows = "nodes => nodes.map((node) => Number(node.dataset.row)).sort((a, b) => a - b)"
    assert drawn.evaluate_all(rows) == list(range(10))
    assert "and 30 rows further down the table" in tab.page.inner_text("#curves-legend")
    button = tab.page.locator(f"th[data-column='metric {ERROR}'] button")
    button.click()
    button.click()
    tab.settle()
    assert drawn.evaluate_all(rows) == list(range(30, 40))
    tab.page.select_option("#curve-rows", label="all")
    assert drawn.count() == 40
    assert tab.page.locator("#axis [data-point]").count() == 40
