"""`slotbench grid pack FILE ARCHIVE` writes the records of what has ended; `unpack` lays them into a folder of runs."""

from __future__ import annotations

from pathlib import Path

from slotbench.commands.arguments import Parser
from slotbench.commands.grid.opening import OpenGrid, open_grid
from slotbench.errors import FileError, UserError, lines
from slotbench.grids.packing import check_archive_name, pack, unpack
from slotbench.text import one_line

__all__ = ["USAGE", "main"]

_PACK = """Usage: slotbench grid pack FILE ARCHIVE.zip

Writes one small file with the records of every point of a grid that has ended: its configuration, result and curves (at
most 200 points each), and the means and intervals of its evaluation records; no weights, no images, no values of single
clips, and nothing of the machine but what it measured. It is what a repository keeps of a study. The same records give
the same bytes.

  --runs_dir DIR    folder of all runs (default: runs)
  --name NAME       the grid's folder there (default: the file's name)

Example:
  slotbench grid pack experiments/grids/bouncing_balls_slots.yaml slots.zip"""

_UNPACK = """Usage: slotbench grid unpack FILE ARCHIVE.zip

Lays the records that `slotbench grid pack` has written into the folder of the grid. Their points are done then:
`slotbench compare FILE` has them, and `slotbench grid run FILE` runs the others alone. A record whose experiment is not
the one that the file names now is left out and named. Nothing in an archive is run.

  --runs_dir DIR    folder of all runs (default: runs)
  --name NAME       the grid's folder there (default: the file's name)

Example:
  slotbench grid unpack experiments/grids/bouncing_balls_slots.yaml slots.zip"""

USAGE = {"pack": _PACK, "unpack": _UNPACK}


def main(action: str, arguments: list[str]) -> int:
    """Packs, or unpacks; 1 if an archive has nothing for this grid."""
    words = [word for word in arguments[:2] if not word.startswith("-")]
    if len(words) != 2:
        example = f"slotbench grid {action} experiments/grids/bouncing_balls_slots.yaml slots.zip"
        raise UserError(lines(f"grid {action} needs a grid file and an archive, in this order", example=example))
    archive = check_archive_name(words[1])
    _, rest = Parser(f"slotbench grid {action}").parse_known_args(arguments[2:])
    opened = open_grid(action, [words[0], *rest])
    points = opened.grid.candidates or opened.grid.points
    if action == "pack":
        if not any(opened.folder.point(point.id).ended() for point in points):
            raise UserError(f"{opened.folder.path} has no point that has ended; slotbench grid run {words[0]} first")
        try:
            packed = pack(opened.folder, points, archive, _roots(opened))
        except (FileError, OSError) as error:
            raise UserError(f"{archive} has not been written: {error}") from error
        size = archive.stat().st_size
        print(f"{archive}: records of {len(packed)} points of {len(opened.grid.points)}, {size / 1000:,.0f} kB")
        return 0
    with opened.folder.driven():
        taken, there, strange = unpack(opened.folder, points, archive)
        opened.restaged().write()
    print(f"{opened.folder.path}: {len(taken)} points unpacked, {len(there)} were there already")
    for point_id in strange:
        print(f"left out: {one_line(point_id, 120)} is no point of {words[0]}, or of an earlier version of it")
    if taken or there:
        print(f"compare them: slotbench compare {words[0]}")
    return 0 if taken or there else 1


def _roots(opened: OpenGrid) -> list[Path]:
    """Folders to strip from paths in records: the grid file's project, here and where it ran, and the current one."""
    file = opened.grid.file.path.resolve()
    here = file.parent
    project = next((folder for folder in (here, *here.parents) if (folder / "pyproject.toml").is_file()), here)
    roots = [project, Path.cwd()]
    ran, within = str(opened.folder.record().get("file", "")), f"/{file.relative_to(project).as_posix()}"
    if ran.endswith(within) and ran != within:
        roots.append(Path(ran.removesuffix(within)))
    return roots
