"""Output that cannot show a sign gets another one, and a reader that goes away is no traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def printed(arguments, encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "slotbench", *arguments]
    return subprocess.run(command, capture_output=True, env=environment, check=False)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_sign_that_cannot_be_shown_is_another_one(encoding):
    done, whole = printed(["plugins", "cores"], encoding), printed(["plugins", "cores"], "utf-8")
    assert (done.returncode, done.stderr) == (0, b"")
    lines, expected = done.stdout.decode(encoding).splitlines(), whole.stdout.decode().splitlines()
    assert lines == [line.encode(encoding, "replace").decode(encoding) for line in expected]
    assert lines != expected


def test_an_error_with_such_a_sign_is_still_its_sentence():
    done = printed(["fit", "--config", "→.yaml"], "ascii")
    assert done.returncode == 2
    assert done.stderr.startswith(b"slotbench: ")
    assert b"Traceback" not in done.stderr


def test_a_reader_that_has_gone_before_anything_was_written_is_no_traceback():
    command = [sys.executable, "-m", "slotbench", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
