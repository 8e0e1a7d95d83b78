"""Ways in which a file can be damaged, drawn from a seed."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Damage = Callable[[Path, random.Random], None]

FOREIGN = (
    b"",
    b"[]",
    b"{}",
    b"null",
    b'"text"',
    b"17",
    b"<html><body>404 Not Found</body></html>",
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    b"PK\x03\x04" + bytes(40),
    b"PK\x05\x06" + bytes(18),
    b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0",
    b"GIF89a\xff\xff\xff\xff\0\0\0",
    b"\x89HDF\r\n\x1a\n" + bytes(64),
    b"\x93NUMPY\x01\0v\0{'descr': '|O', 'fortran_order': False, 'shape': (9999999999,), }",
    b"\x80\x02cposix\nsystem\nq\0X\x04\0\0\0trueq\x01\x85q\x02Rq\x03.",
    b"\0" * 4096,
    bytes(range(256)) * 16,
    b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    b"\xff\xfe\0\0not UTF-8",
)
HUGE = (2**31 - 1, 2**32 - 1, 2**33, 2**62, 2**64 - 1)
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 10**15, 1e308, float("nan"), "", "text", "../../../etc/passwd", "\x1b[2J", [], {}, [[]],
    {"a": {}}, int("9" * 400),
)  # fmt: skip


def truncated(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(max(1, path.stat().st_size)))


def cut_near_the_end(path: Path, rng: random.Random) -> None:
    os.truncate(path, max(0, path.stat().st_size - rng.randint(1, 16)))


def one_bit(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def one_bit_at_the_start(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[rng.randrange(min(len(content), 128))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def many_bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(min(len(content), 20)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(content)


def zeroed(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    start = rng.randrange(max(1, len(content)))
    stop = min(len(content), start + rng.randint(1, 512))
    content[start:stop] = bytes(stop - start)
    path.write_bytes(content)


def appended(path: Path, rng: random.Random) -> None:
    with path.open("ab") as file:
        file.write(rng.choice((b"\n", b"junk", b"\0" * 100, b"]}", path.read_bytes()[:1000])))


def doubled(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() * 2)


def foreign(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.choice(FOREIGN))


def emptied(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def huge_length(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    number = rng.choice(HUGE)
    packed = (
        struct.pack(rng.choice("<>") + "Q", number) if number > 2**32 else struct.pack(rng.choice("<>") + "I", number)
    )
    start = 4 * rng.randrange(max(1, min(len(content), 2048) // 4))
    content[start : start + len(packed)] = packed
    path.write_bytes(content)


def not_utf8(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    place = rng.randint(0, len(content))
    path.write_bytes(
        content[:place] + rng.choice((b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\0", b"\x80abc")) + content[place:]
    )


def nested(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.choice((b"[", b'{"a":', b"- ")) * 60_000)


def long_number(path: Path, rng: random.Random) -> None:
    text = path.read_bytes()
    places = [i for i in range(len(text)) if chr(text[i]).isdigit()]
    place = rng.choice(places) if places else 0
    path.write_bytes(text[:place] + b"9" * 6000 + text[place + 1 :])


def other_value(path: Path, rng: random.Random) -> None:
    """In JSON and YAML one value becomes another; elsewhere some bytes do."""
    try:
        text = path.read_text(encoding="utf-8")
        first, _, rest = text.partition("\n")
        if path.suffix in (".yaml", ".yml"):
            path.write_text(yaml.safe_dump(changed(yaml.safe_load(text), rng)), encoding="utf-8")
        elif path.suffix == ".jsonl":
            path.write_text(json.dumps(changed(json.loads(first), rng)) + "\n" + rest, encoding="utf-8")
        else:
            path.write_text(json.dumps(changed(json.loads(text), rng)), encoding="utf-8")
    except (ValueError, yaml.YAMLError, RecursionError):
        many_bytes(path, rng)


def changed(value: Any, rng: random.Random) -> Any:
    """A copy of a tree of values in which one is another or is left out."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return value | {key: changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        index = rng.randrange(len(value))
        return [*value[:index], changed(value[index], rng), *value[index + 1 :]]
    return rng.choice(VALUES)


def a_folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def endless(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def a_link_to_nothing(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def removed(path: Path, rng: random.Random) -> None:
    path.unlink()


BYTES: tuple[Damage, ...] = (
    truncated, one_bit, huge_length, other_value, many_bytes, cut_near_the_end, zeroed, foreign, not_utf8,
    one_bit_at_the_start, long_number, appended,
)  # fmt: skip
ONCE: tuple[Damage, ...] = (
    emptied, nested, a_folder, a_pipe, endless, a_link_to_nothing, removed, doubled,
)  # fmt: skip


def damages(count: int, seed: str) -> list[tuple[str, Damage, random.Random]]:
    """So many damages, each with a name that says how to make it again and a generator of its own."""
    found = []
    for number in range(count):
        # each of those that are alike once, the others again and again
        damage = ONCE[number] if number < len(ONCE) else BYTES[(number - len(ONCE)) % len(BYTES)]
        found.append((f"{damage.__name__}-{number}", damage, random.Random(f"{seed}/{number}")))
    return found
