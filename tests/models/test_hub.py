"""Models on the Hub, against a double of huggingface_hub: no test of this project talks to huggingface.co.

The double has the calls that are used; where huggingface_hub is installed, they are compared with its own.
"""

from __future__ import annotations

import inspect
import json
import shutil
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import save_file
from torch import zeros

import slotbench
from slotbench.cli import run
from slotbench.errors import UserError
from slotbench.models import finding, hub


class HfApi:
    """Repositories in a folder, one revision each."""

    root: Path
    calls: list[tuple[str, dict[str, Any]]]

    def create_repo(self, repo_id: str, *, private: bool | None = None, exist_ok: bool = False) -> None:
        self.calls.append(("create_repo", {"repo_id": repo_id, "private": private}))
        (self.root / repo_id).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(
        self,
        *,
        repo_id: str,
        folder_path: Path,
        revision: str | None = None,
        allow_patterns: list[str] | None = None,
    ) -> None:
        for path in Path(folder_path).rglob("*"):
            name = path.relative_to(folder_path).as_posix()
            if path.is_file() and any(fnmatch(name, pattern) for pattern in allow_patterns or ()):
                (self.root / repo_id / name).parent.mkdir(exist_ok=True)
                shutil.copy(path, self.root / repo_id / name)


def snapshot_download(
    repo_id: str, *, revision: str | None = None, cache_dir: Path | None = None, allow_patterns: list[str] | None = None
) -> str:
    HfApi.calls.append(("snapshot_download", {"revision": revision}))
    assert cache_dir is not None
    place, folder = HfApi.root / repo_id, cache_dir / repo_id
    if not place.is_dir():
        raise OSError(f"404 Client Error: no repository {repo_id}\nRequest ID: 1")
    for path in place.rglob("*"):
        name = path.relative_to(place).as_posix()
        if any(fnmatch(name, pattern) for pattern in allow_patterns or ()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / name)
    return str(folder)


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[HfApi]:
    HfApi.root, HfApi.calls = tmp_path / "remote", []
    monkeypatch.setattr(hub, "_library", lambda: SimpleNamespace(HfApi=HfApi, snapshot_download=snapshot_download))
    monkeypatch.setenv("SLOTBENCH_CACHE", str(tmp_path / "cache"))
    return HfApi


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a model; that it is read, test_exported_models tests."""
    monkeypatch.setattr("slotbench.models.hub.read_model", lambda folder: None)
    monkeypatch.setattr("slotbench.models.finding.read_model", lambda folder, features=None: folder)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"format": "slotbench model"}))
    save_file({"a": zeros(1)}, folder / "model.safetensors")
    for name in ("README.md", "notes.txt", "payload.py"):
        (folder / name).write_text(name)
    return folder


def test_a_model_that_is_pushed_is_pulled_as_it_was(double: type[HfApi], model: Path) -> None:
    assert run(["export", str(model), "--push", "hf://me/balls", "--private"]) == 0
    assert double.calls[0] == ("create_repo", {"repo_id": "me/balls", "private": True})
    sent = sorted(path.name for path in (double.root / "me" / "balls").iterdir())
    assert sent == ["README.md", "config.json", "model.safetensors"]
    folder = finding.from_pretrained("hf://me/balls@main")
    for name in ("config.json", "model.safetensors"):
        assert (folder / name).read_bytes() == (model / name).read_bytes()
    assert not (folder / "README.md").exists()
    assert ("snapshot_download", {"revision": "main"}) in double.calls
    assert finding.from_pretrained("hf://me/balls") == folder


def test_what_the_hub_refuses_is_one_sentence(double: type[HfApi]) -> None:
    with pytest.raises(UserError, match="hf://me/nothing: OSError: 404 Client Error: no repository me/nothing\n"):
        slotbench.from_pretrained("hf://me/nothing")


def test_a_repository_without_a_model_is_refused(double: type[HfApi]) -> None:
    HfApi().create_repo("me/data")
    with pytest.raises(UserError, match="hf://me/data holds no exported model"):
        slotbench.from_pretrained("hf://me/data")


@pytest.mark.parametrize(
    "address", ["hf://me", "hf://../up", "hf://me/..", "hf://me/a/b", "hf://me/a@../b", "hf://", "hf://me/a b", "me/a"]
)
def test_what_is_no_address_is_refused(address: str, model: Path) -> None:
    with pytest.raises(UserError, match="is no address of a model"):
        hub.push(model, address)


def test_without_huggingface_hub_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"pip install 'slotbench\[hub\]'"):
        slotbench.from_pretrained("hf://me/balls")


def test_the_double_takes_what_huggingface_hub_takes() -> None:
    library = pytest.importorskip("huggingface_hub", reason="the extra hub")
    pairs = [(snapshot_download, library.snapshot_download)]
    names = ("create_repo", "upload_folder")
    pairs += [(getattr(HfApi, name), getattr(library.HfApi, name)) for name in names]
    for ours, theirs in pairs:
        known = inspect.signature(theirs).parameters
        for name, parameter in inspect.signature(ours).parameters.items():
            assert name in known
            assert parameter.kind == known[name].kind
