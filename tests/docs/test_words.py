"""What the project writes for people: lines of at most 120 characters, and the words of the field."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIDTH = 120

BANNED = {
    r"\bstrangers?\b": "third-party, a third party",
    r"\bforet(?:ell|ells|old|elling)\b": "predict",
    r"\bsoft-max\b": "softmax",
    r"\b(?:go|goes|going|gone|went) on with\b": "resume, continue",
    r"\btrivial (?:answer|predictor)s?\b": "baseline",
    r"(?<![\w./-])floors?\b(?!\()": "baseline; or the floor that objects stand on",
    r"\blearning[- ]rates? rates?\b": "learning rate",
}
"""A word that readers of the field would have to guess at, and what to write."""

FLOORS = re.compile(
    r"movi_like|multi_camera|clevr|cater|depth|figures/|docs/results\.md|docs/metrics\.md|runs/oracles\.py|runs/run_info\.py|tests/data/test_arguments\.py|"
    r"comparison/records\.py|CHANGELOG\.md"
)
"""Files that speak of the floor under objects, or read what version 0.1 has recorded under the name."""


def texts(*endings: str) -> dict[str, str]:
    """The files of the repository with these endings, by path."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    found = listed or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if ".venv" not in path.parts]
    kept = [path for path in found if path.endswith(endings)]
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in kept if (ROOT / path).is_file()}


def prose_of_markdown(text: str) -> list[str]:
    """The lines of a page that are no code, no table, no image, and more than a heading."""
    lines, in_code = [], False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
        elif not in_code and not line.startswith("    ") and not line.lstrip().startswith(("|", "#", "![", "<!--")):
            lines.append(line)
    return lines


def test_prose_lines_of_markdown_are_at_most_120_wide():
    long = {
        path: lines
        for path, text in texts(".md").items()
        if (lines := [line for line in prose_of_markdown(text) if len(line) > WIDTH])
    }
    assert long == {}


def test_comments_of_yaml_files_are_at_most_120_wide_but_for_commands():
    long = {
        path: lines
        for path, text in texts(".yaml").items()
        if (
            lines := [
                line
                for line in text.splitlines()
                if line.lstrip().startswith("#") and len(line) > WIDTH and "slotbench " not in line
            ]
        )
    }
    assert long == {}


@pytest.mark.parametrize("pattern", BANNED)
def test_words_that_readers_would_have_to_guess_at_are_not_used(pattern):
    mine = Path(__file__).relative_to(ROOT).as_posix()
    found = {
        path: hits
        for path, text in texts(".py", ".md", ".yaml", ".yml", ".toml", ".template", ".ipynb").items()
        if path != mine and not ("floor" in pattern and FLOORS.search(path))
        if (hits := re.findall(rf"^.*{pattern}.*$", text, re.MULTILINE | re.IGNORECASE))
    }
    assert found == {}, f"write {BANNED[pattern]}"


def test_an_image_is_not_called_a_picture_in_pages_and_headers():
    """In code `pictures` is the method that draws figures for people."""
    found = {}
    for path, text in texts(".md", ".yaml").items():
        lines = prose_of_markdown(text) if path.endswith(".md") else re.findall("#.*", text)
        prose = [re.sub(r"`[^`]*`|\]\([^)]*\)", "", line) for line in lines]
        if hits := [line for line in prose if re.search(r"\bpictures?\b", line, re.IGNORECASE)]:
            found[path] = hits
    assert found == {}


def test_what_is_prose_and_what_is_not():
    page = "A line.\n\n```bash\ncode\n```\n| table |\n    code\n![image](a.png)\n- item"
    assert prose_of_markdown(page) == ["A line.", "", "- item"]
