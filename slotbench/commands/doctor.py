"""`slotbench doctor`: what is installed, what does not work here, and why."""

from __future__ import annotations

import importlib.metadata
import platform
import traceback

from slotbench import registry
from slotbench.commands.failures import UserError
from slotbench.commands.options import split_options

__all__ = ["main"]

_PACKAGES = ("slotbench", "torch", "lightning", "jsonargparse", "torchmetrics", "numpy", "numba", "wandb", "mamba-ssm")
_USAGE = """Usage: slotbench doctor [--plugin FILE]

Prints versions and devices, imports every component, and says which kernels run here.
Exit code 1 if a component is broken."""


def main(command: str, arguments: list[str]) -> int:
    """Prints the report; 1 if a component cannot be imported."""
    if "--help" in arguments or "-h" in arguments:
        print(_USAGE)
        return 0
    options, rest = split_options(arguments)
    if rest:
        raise UserError(f"doctor has no argument {rest[0]}\n{_USAGE}")
    for file in options.plugin:
        registry.load_file(file)
    print(f"python {platform.python_version()} on {platform.platform()}")
    for package in _PACKAGES:
        print(f"{package} {_version(package)}")
    _print_devices()
    _print_kernels()
    return _print_components()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _print_devices() -> None:
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    print(f"\ndevices: {', '.join(names) or 'CPU only'}; torch uses {torch.get_num_threads()} threads")


def _print_kernels() -> None:
    import torch

    from slotbench.ops import available_kernels

    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        for op in ("selective_scan", "ssd", "causal_conv1d"):
            print(f"\n{op} on {device}:")
            for kernel, problem in available_kernels(op, device).items():
                print(f"  {'ok' if problem is None else 'no':<3} {kernel}{f': {problem}' if problem else ''}")


def _print_components() -> int:
    print("\ncomponents:")
    broken = 0
    for kind in registry.KINDS:
        for name in registry.names(kind):
            try:
                registry.load(kind, name)
                print(f"  ok      {registry.KINDS[kind]:<12} {name}")
            except registry.RegistryError as error:
                broken += 1
                print(f"  broken  {registry.KINDS[kind]:<12} {name}: {error}")
                if error.__cause__ is not None:
                    print("".join(traceback.format_exception(error.__cause__)).rstrip())
    if broken:
        print(f"\n{broken} broken; the others work")
    return 1 if broken else 0
