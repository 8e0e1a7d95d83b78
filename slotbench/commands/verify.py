"""`slotbench prepare NAME --out DIR --verify`: whether what was written is still what lies there."""

from __future__ import annotations

from pathlib import Path

from slotbench.commands.prepare import preparing
from slotbench.errors import UserError, lines

__all__ = ["verify"]

_UNFINISHED = ("progress.json", "*.progress.json")


def verify(name: str, arguments: list[str]) -> int:
    """Compares the check sums of everything below a folder; 1 if a file is damaged or missing, or writing unfinished.

    Raises:
        UserError: the arguments are not a folder, or there is nothing in it that was prepared.
    """
    from slotbench.data.checksums import SUMS, damaged_files, read_sums

    out = _folder(name, arguments)
    unfinished = sorted({path.parent for pattern in _UNFINISHED for path in out.rglob(pattern)})
    complete = {path.parent for pattern in ("cache.json", "*.h5") for path in out.rglob(pattern)}
    folders = sorted({path.parent for path in out.rglob(SUMS)} | complete)
    if not folders and not unfinished:
        raise UserError(
            lines(f"{out} holds nothing that slotbench has prepared", expected=f"the folder that {name} was written to")
        )
    damaged: dict[Path, dict[str, str]] = {}
    with preparing(name, out) as report:
        for folder in folders:
            sizes = [(folder / file).stat().st_size for file in read_sums(folder) if (folder / file).is_file()]
            total, read = sum(sizes), 0

            def advance(size: int, folder: Path = folder, total: int = total) -> None:
                nonlocal read
                read += size
                report(str(folder), read, total)

            damaged[folder] = damaged_files(folder, advance)
    for folder, files in damaged.items():
        for file, wrong in files.items():
            print(f"damaged  {folder / file} {wrong}")
        if files:
            print(f"         delete {folder} and run the same `slotbench prepare {name}` again, without --verify")
        else:
            print(f"ok       {folder}: {len(read_sums(folder))} files")
    for folder in unfinished:
        print(f"unfinished  {folder}: run the same `slotbench prepare {name}` again, without --verify: it goes on")
    return 1 if unfinished or any(damaged.values()) else 0


def _folder(name: str, arguments: list[str]) -> Path:
    """The folder of `--out DIR` or `--out=DIR`; what else the data set was prepared with does not matter here."""
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option == "--out":
            given = value if equals else next(iter(arguments[index + 1 :]), "")
            if not given.strip() or (not equals and given.startswith("--")):
                break  # nothing is named; the folder that one is in must not be taken for it
            out = Path(given)
            if not out.is_dir():
                raise UserError(f"there is no folder {out} to verify")
            return out
    raise UserError(lines("no folder is named", expected=f"slotbench prepare {name} --out DIR --verify"))
