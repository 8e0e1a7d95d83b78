"""Runs a notebook from its first cell to its last and stores what the cells show, without Jupyter.

    python docs/scripts/run_notebook.py docs/python.ipynb

It runs in a temporary folder. A cell's printed lines, its last expression and images of PIL are kept; warnings and what
else goes to stderr are not.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image


def main() -> int:
    """Runs the notebook that is named, and writes it back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path)
    path: Path = parser.parse_args().notebook.resolve()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    began, worked = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run(notebook)
        left = sorted(str(found) for found in Path().rglob("*"))
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{time.monotonic() - began:.0f} s, {time.process_time() - worked:.0f} s of a CPU; left behind: {left}")
    return 0


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Runs the cells of code in order, in this process, and puts what they show into them.

    Args:
        notebook: as its file has it; changed in place.

    Returns:
        the names that the cells have made.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = _run_cell("".join(cell["source"]), names)
        cell["execution_count"] = number
        cell["outputs"] = [] if not printed.getvalue() else [_stream(printed.getvalue())]
        if value is not None:
            cell["outputs"].append(_result(value, number))
    return names


def _run_cell(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell; the value of its last line if that is an expression."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def _stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def _result(value: Any, number: int) -> dict[str, Any]:
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if isinstance(value, Image.Image):
        data = {"image/png": _png(value), "text/plain": [f"<image of {value.width} x {value.height} pixels>"]}
    return {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}


def _png(image: Image.Image) -> str:
    stream = io.BytesIO()
    image.quantize(255).save(stream, "PNG", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()


if __name__ == "__main__":
    raise SystemExit(main())
