"""A real browser without a window, where there is one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "comparison"))

from page_comparisons import made_up

from slotbench.comparison.page.page import write_html
from slotbench.comparison.records import Comparison

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# no window, no sandbox (containers have none), and none of the requests that a browser makes on its own account
_QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
]


LAYERS = """(name) => {
  const [plot] = Bokeh.documents.flatMap((drawn) => drawn.roots()).filter((root) => root.name === name);
  const columns = (data) => (data instanceof Map ? Object.fromEntries(data) : data);
  return Object.fromEntries(plot.renderers.map(({ data_source }) => [data_source.name, columns(data_source.data)]));
}"""


@dataclass
class Tab:
    """A page that is open, what it has asked for, and what it has complained of."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def labels(self) -> list[str]:
        """The rows of the table from top to bottom."""
        return self.page.locator("#table tbody.rows tr[data-row] .name").all_inner_texts()

    def layers(self, plot: str) -> dict[str, dict[str, list[Any]]]:
        """What a plot shows, by layer and column: "curves METRIC", or "axis"."""
        return self.page.evaluate(LAYERS, plot)

    def rows(self, plot: str, layer: str = "lines") -> list[int]:
        """Rows of the comparison that have something in a layer of a plot, reference lines left out."""
        return sorted({row for row in self.layers(plot)[layer]["row"] if row >= 0})

    def point_at(self, x: float, y: float) -> str:
        """Moves the pointer there until the page says something about the place; what it says."""
        for _ in range(50):
            self.page.mouse.move(x + 1, y)
            self.page.mouse.move(x, y)
            self.page.wait_for_timeout(100)
            if self.page.locator("#tip").is_visible():
                return self.page.inner_text("#tip")
        raise AssertionError("nothing is said about the place under the pointer")

    def settle(self) -> None:
        """Waits until the page has drawn what was asked for."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    found = os.environ.get("SLOTBENCH_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    with driver.sync_playwright() as playwright:
        path = found or playwright.chromium.executable_path
        if not Path(path).exists():
            pytest.skip(
                "needs Chromium: install it, or name it in SLOTBENCH_CHROMIUM, or run playwright install chromium"
            )
        chromium = playwright.chromium.launch(executable_path=path, args=_QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    """Writes a comparison's page and opens it; at the end it must have asked for nothing and complained of nothing."""
    tabs = []

    def opened(comparison: Comparison, width: int = 1300, colours: str = "light", **options: int) -> Tab:
        path = tmp_path / f"page_{len(tabs)}.html"
        write_html(comparison, path, **options)
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=colours)
        context.set_default_timeout(60_000)
        tab = Tab(context.new_page())
        tabs.append(tab)
        tab.page.on("request", lambda request: tab.requests.append(request.url))
        tab.page.on("console", lambda message: tab.complaints.append(message.text))
        tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.page.goto(path.as_uri())
        tab.settle()
        return tab

    yield opened
    for tab in tabs:
        asked = [url for url in tab.requests if not url.startswith("data:")]
        complaints = list(tab.complaints)
        tab.page.context.close()
        # itself alone, also when it is loaded again
        assert len({url.partition("#")[0] for url in asked}) == 1
        assert asked[0].startswith("file://")
        assert complaints == []


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    """Nine rows: three cores over three numbers of slots, three seeds each, one of which has failed."""
    return made_up(cores=3, slots=(4, 8, 16), seeds=3, media=tmp_path, states={4: "failed"}, notes=["a note"])
