"""The command lines of the pages and of the experiments' headers: they name what there is, and their settings exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from slotbench import cli
from slotbench.config.command_line import resolve

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").rglob("*.yaml")]
MADE_BY_THE_READER = re.compile(
    r"MyCore|my_core|packed_videos|theirs|mine\.yaml|experiments/balls\.yaml|SSMM|FILE|\[settings"
)


def commands(page: Path) -> list[str]:
    """The command lines of slotbench in the blocks of code of a page, and in the comments of a YAML file."""
    text = re.sub(r"\\\n#?\s*", " ", page.read_text(encoding="utf-8"))
    if page.suffix == ".yaml":
        code = re.findall(r"^#   (slotbench .*)$", text, re.MULTILINE)
    else:
        code = re.findall(r"^```(?:bash|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        code += re.findall(r"^    (slotbench .*)$", text, re.MULTILINE)
    return re.findall(r"^(?:\$ |.* && )?(?:\.venv/bin/)?slotbench ([a-z].*)$", "\n".join(code), re.MULTILINE)


def all_commands() -> dict[tuple[str, ...], str]:
    """Every command line by its words, with the pages that have it."""
    found: dict[tuple[str, ...], str] = {}
    for page in sorted(PAGES):
        for line in commands(page):
            words = tuple(shlex.split(line, comments=True))
            found[words] = f"{found.get(words, '')} {page.relative_to(ROOT)}".strip()
    return found


def trained() -> list[tuple[str, ...]]:
    """What follows `slotbench fit` of an experiment that is there, if it is more than files.

    Of lines with the same options of a paper's experiments of one data set the first; of lines of one experiment that
    name no class all settings together.
    """
    found: dict[tuple[str, frozenset[str]], tuple[str, ...]] = {}
    for _, *words in sorted(line for line in all_commands() if line[0] == "fit" and "--config" in line):
        if set(words[::2]) > {"--config"} and not MADE_BY_THE_READER.search(" ".join(words)):
            file = words[words.index("--config") + 1]
            name = file.partition("_")[0] if "/paper/" in file else " ".join(words)
            found.setdefault((name, frozenset(words[::2])), tuple(words))
    together: dict[str, tuple[str, ...]] = {}
    for words in found.values():
        names_a_class = words.count("--config") > 1 or any(re.match(r"[A-Z].*[a-z]|\[|{", word) for word in words[1::2])
        at = words.index("--config")
        key = " ".join(words) if names_a_class else words[at + 1]
        together[key] = together[key] + words[:at] + words[at + 2 :] if key in together else words
    return [*together.values()]


def test_every_command_is_one_and_every_file_of_the_repository_that_it_names_is_there():
    wrong = []
    for words, pages in all_commands().items():
        if words[0] not in cli.COMMANDS:
            wrong.append((pages, words))
        for word in words:
            if re.match(r"(experiments|docs)/", word) and not MADE_BY_THE_READER.search(word):
                wrong += [(pages, words)] * (not (ROOT / word.partition("=")[0]).exists())
    assert wrong == []
    assert len(all_commands()) > 150


@pytest.mark.parametrize("words", trained(), ids=" ".join)
def test_every_training_is_one_that_the_parser_takes(words, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert "class_path" in resolve(list(words)).values["model"]
