"""A run from somebody else, whose files and folders are links to elsewhere: nothing is written through any of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ended_runs import fit, interrupt_before_the_result
from foreign_links import put_in_place_of

from slotbench.cli import run
from slotbench.errors import FileError
from slotbench.files import check_own_folder

pytestmark = [pytest.mark.filterwarnings("ignore:.*does not have many workers.*"), pytest.mark.usefixtures("here")]

COMMANDS = (["fit", "--resume"], ["validate"], ["test"], ["predict"])


@pytest.fixture(scope="module")
def interrupted(whole: str) -> str:
    """A run with all that a run writes, W&B's files and an evaluation too, which waits to be resumed."""
    assert fit("mirrored", "--wandb", "offline") == 0
    assert run(["test", "mirrored"]) == 0
    interrupt_before_the_result("mirrored")
    return "mirrored"


def copy(folder: str, name: str) -> str:
    """A copy, in which W&B's links to its newest run are links."""
    shutil.copytree(folder, name, symlinks=True)
    return name


def written(folder: Path) -> list[str]:
    """Every file and folder of a run, but of W&B's only what it writes again."""
    found = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    # W&B gives each process a new folder; it links to the newest
    again = {"wandb", "latest-run", "debug.log"}
    wanted = (path for path in found if path.parts[0] != "wandb" or (path.name in again and len(path.parts) < 3))
    return [str(path) for path in wanted]


def everything(folder: Path) -> dict[str, bytes | None]:
    """The content of each file below a folder; None for a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file and a folder outside, which are to be found as they were."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.ckpt").write_text("mine\nhalf a line")
    (tmp_path / "file").write_text("mine\nhalf a line")
    before = everything(tmp_path)
    yield tmp_path
    assert everything(tmp_path) == before


def refused(command: list[str], path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run([*command, path.parts[0]]) == 2, (command, path)
    said = " ".join(capsys.readouterr().err.split())
    assert "Traceback" not in said
    assert str(path) in said, (command, path)
    return said


def test_no_link_in_the_place_of_what_a_run_writes_is_followed(
    interrupted: str, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = written(Path(interrupted))
    assert {".lock", "metrics.jsonl", "run.json", "checkpoints", "media", "wandb", "checkpoints/last.ckpt"} <= {*names}
    for name in names:
        copied = Path(copy(interrupted, "linked"))
        path = copied / name
        put_in_place_of(path, victim / ("folder" if path.is_dir() else "file"))
        for command in COMMANDS:
            said = refused(command, path, capsys)
            # config.yaml and run.json are read first, and what they lead to is neither
            assert "is a link that leads out of" in said or name in ("config.yaml", "run.json"), said
        shutil.rmtree(copied)


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "media", "checkpoints/last.ckpt", "notes"])
def test_a_pipe_is_refused_and_not_waited_for(interrupted: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    copied = Path(copy(interrupted, "piped"))
    put_in_place_of(copied / name, None)
    for command in COMMANDS:
        assert "is a named pipe" in refused(command, copied / name, capsys)
    shutil.rmtree(copied)


def test_a_folder_in_the_place_of_the_lock_is_named(interrupted: str, capsys: pytest.CaptureFixture[str]) -> None:
    copied = Path(copy(interrupted, "locked"))
    (copied / ".lock").unlink(missing_ok=True)
    (copied / ".lock").mkdir()
    assert "is a folder" in refused(["fit", "--resume"], copied / ".lock", capsys)
    shutil.rmtree(copied)


def test_a_file_with_a_second_name_elsewhere_is_not_written_to(interrupted: str, victim: Path) -> None:
    copied = Path(copy(interrupted, "shared"))
    rows = (copied / "metrics.jsonl").read_bytes()
    (victim / "rows").write_bytes(rows + b"half")
    for name, other in (("metrics.jsonl", "rows"), (".lock", "file")):
        (copied / name).unlink(missing_ok=True)
        os.link(victim / other, copied / name)
    assert run(["fit", "--resume", str(copied)]) == 0
    assert (victim / "rows").read_bytes() == rows + b"half"
    (victim / "rows").unlink()
    shutil.rmtree(copied)


def test_a_new_run_in_a_folder_with_links_is_refused(victim: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, what in (("checkpoints", "folder"), ("media", "folder"), ("metrics.jsonl", "file"), ("wandb", "absent")):
        Path("prepared").mkdir()
        (Path("prepared") / name).symlink_to(victim / what)
        assert fit("prepared") == 2
        assert f"prepared/{name} is a link that leads out" in " ".join(capsys.readouterr().err.split())
        assert [path.name for path in Path("prepared").iterdir()] == [name]
        shutil.rmtree("prepared")


def test_a_run_behind_the_users_own_link_and_links_within_it_work(interrupted: str, tmp_path: Path) -> None:
    copy(interrupted, str(tmp_path / "scratch"))
    Path("elsewhere").symlink_to(tmp_path / "scratch")
    (tmp_path / "scratch" / "newest.ckpt").symlink_to("checkpoints/last.ckpt")
    for command in COMMANDS:
        assert run([*command, "elsewhere"]) == 0, command
    assert (tmp_path / "scratch" / "result.json").is_file()
    Path("elsewhere").unlink()


def test_what_wandb_links_to_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "run" / "wandb" / "offline-run" / "files").mkdir(parents=True)
    (tmp_path / "run" / "wandb" / "latest-run").symlink_to("offline-run")
    (tmp_path / "run" / "wandb" / "offline-run" / "files" / "mine.py").symlink_to(tmp_path)
    check_own_folder(tmp_path / "run")
    (tmp_path / "run" / "wandb" / "debug.log").symlink_to(tmp_path / "log")
    with pytest.raises(FileError, match=r"debug\.log is a link that leads out of"):
        check_own_folder(tmp_path / "run")
