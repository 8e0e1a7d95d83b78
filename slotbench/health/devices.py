"""Whether torch can use a graphics card here, and if not, why."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from slotbench.health.findings import Finding, one_line

__all__ = ["DEVICE_NAMES", "devices"]

DEVICE_NAMES = ("torch build", "cuda")
_PATIENCE = 10.0  # seconds that the driver's own tool may take


def devices() -> Iterator[Finding]:
    """What torch was built for, and every card with its memory, capability and driver."""
    import torch

    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU"
    if hip := getattr(torch.version, "hip", None):
        built = f"ROCm {hip}"
    yield Finding("devices", "torch build", "ok", f"{torch.__version__}, built for {built}")
    cards = _driver_says()
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            yield _card(index, cards)
    elif not cards:
        mend = "none needed for the experiments of experiments/*.yaml; --require cuda makes this an error"
        yield Finding("devices", "cuda", "note", "no card that torch could use: everything runs on the CPU", mend)
    elif not torch.version.cuda:
        mend = "install a CUDA build of torch: docs/install_cuda.md"
        yield Finding("devices", "cuda", "note", f"{'; '.join(cards)}, and this torch is built for the CPU", mend)
    else:
        text = f"{'; '.join(cards)}, and torch, built for {built}, cannot use it: the driver may be too old"
        mend = "a newer driver, or a torch built for an older CUDA; CUDA_VISIBLE_DEVICES must not be empty"
        yield Finding("devices", "cuda", "broken", text, mend)


def _card(index: int, cards: list[str]) -> Finding:
    import torch

    name = "cuda" if index == 0 else f"cuda:{index}"
    properties = torch.cuda.get_device_properties(index)
    capability = f"{properties.major}.{properties.minor}"
    driver = cards[index].rpartition(", driver ")[2] if index < len(cards) else "unknown"
    try:
        free, _ = torch.cuda.mem_get_info(index)
        product = torch.ones(64, 64, device=f"cuda:{index}") @ torch.ones(64, 64, device=f"cuda:{index}")
        wrong = "" if bool((product == 64).all()) else "a product of matrices came out wrong"
    except Exception as error:
        free, wrong = 0, one_line(error)
    text = (
        f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB ({free / 2**30:.0f} free), "
        f"capability {capability}, driver {driver}"
    )
    if wrong:
        known = ", ".join(torch.cuda.get_arch_list())
        mend = f"this torch is compiled for {known}: another build of torch, docs/install_cuda.md"
        return Finding("devices", name, "broken", f"{text}: {wrong}", mend)
    return Finding("devices", name, "ok", text)


def _driver_says() -> list[str]:
    """The cards that the driver knows, whatever torch makes of them."""
    if shutil.which("nvidia-smi") is None:
        return []
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=_PATIENCE, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip().replace(", ", ", driver ") for line in said.splitlines() if line.strip()]
