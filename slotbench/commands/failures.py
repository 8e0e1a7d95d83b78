"""Errors that are the user's to mend: a few lines on stderr, exit code 2."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(Exception):
    """A command line or configuration that cannot be run; the message says what was given, what was expected, what to type."""
