"""What a configuration may import.

A configuration names classes, and importing and calling whatever a file names would let a file from a stranger run any
program. So only these may be named: what slotbench ships with, registered components (the user has installed their
packages), the parts of torch and lightning that experiments need, and what the user allows on the command line.
"""

from __future__ import annotations

from collections.abc import Iterable

from jsonargparse import set_parsing_settings

from slotbench import registry
from slotbench.commands.class_changes import keep_only_what_was_said, take_null_for_a_value
from slotbench.errors import UserError

__all__ = ["allowed_prefixes", "apply_policy", "is_allowed"]

_LIBRARIES = (
    "slotbench",
    "slotbench_plugins",
    "torch.nn",
    "torch.optim",
    "lightning.pytorch.accelerators",
    "lightning.pytorch.callbacks",
    "lightning.pytorch.loggers",
    "lightning.pytorch.plugins",
    "lightning.pytorch.profilers",
    "lightning.pytorch.strategies",
    "lightning.fabric.plugins",
    # where Lightning keeps a second learning-rate scheduler and names of its own for standard types
    "lightning.pytorch.cli.ReduceLROnPlateau",
)


def allowed_prefixes(extra: Iterable[str] = ()) -> list[str]:
    """Every import path below which a configuration may name classes."""
    return [*_LIBRARIES, *sorted(registry.modules()), *extra]


def apply_policy(extra: Iterable[str] = ()) -> None:
    """Tells the parser what may be imported; call it after the components that are named have been imported.

    Args:
        extra: import paths that the user allows.

    Raises:
        UserError: one of them is not an import path.
    """
    for prefix in extra:
        if not all(part.isidentifier() for part in prefix.split(".")):
            raise UserError(f"--allow-import takes an import path such as my_package.models; got {prefix}")
    keep_only_what_was_said()
    take_null_for_a_value()
    set_parsing_settings(
        import_path_denylist=["*"],
        import_path_allowlist=allowed_prefixes(extra),
        # a configuration is a file on this machine, never an address
        config_read_mode_fsspec_enabled=False,
    )


def is_allowed(path: str, prefixes: Iterable[str]) -> bool:
    """Whether `path` is one of the prefixes or below one."""
    return any(path == prefix or path.startswith(f"{prefix}.") for prefix in prefixes)
