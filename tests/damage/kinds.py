"""The kinds of files that slotbench reads: how a good one is made, and how it is read.

A new kind is one more entry in a table such as `data_kinds.KINDS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slotbench.cli import run
from slotbench.errors import FileError


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        make: writes good files into a folder, and returns the one that is to be damaged.
        read: reads it as a command does, given the folder, and returns something to compare.
        exact: whether damage that is not refused must leave what is read as it was; else any valid value will do.
        tolerant: whether no damage may be refused, as the rest is of use without the file.
        named: whether a refusal names the file, or the folder that it is in.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    exact: bool = False
    named: bool = True
    tolerant: bool = False


def fingerprint(values: Any) -> str:
    """Tells trees of arrays apart."""
    digest = hashlib.sha256()
    for part in _parts(values):
        digest.update(part)
    return digest.hexdigest()[:16]


def _parts(values: Any) -> Iterable[bytes]:
    if isinstance(values, torch.Tensor):
        values = values.detach().numpy()
    if isinstance(values, np.ndarray):
        yield f"{values.dtype}{values.shape}".encode()
        yield np.ascontiguousarray(values).tobytes()
    elif isinstance(values, Mapping):
        for name in sorted(values):
            yield str(name).encode()
            yield from _parts(values[name])
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _parts(value)
    elif hasattr(values, "frames"):
        yield from _parts({k: v for k, v in vars(values).items() if v is not None})
    else:
        yield repr(values).encode()


def through_cli(*arguments: str | Path) -> str:
    """What a command prints; a refusal, with exit code 2, as the error that it is made of."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = run([str(argument) for argument in arguments])
    if code == 2:
        # as it was before its lines were broken
        raise FileError(" ".join(said.getvalue().split()))
    if code != 0:
        raise AssertionError(f"exit code {code}: {out.getvalue()[-500:]} {said.getvalue()[-2000:]}")
    return out.getvalue()
