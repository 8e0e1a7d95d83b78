"""Compiles a Triton kernel as it is launched, for a GPU that need not be there."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

_TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}


class Launches:
    """In the place of a kernel: keeps what it is launched with, and launches nothing."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        assert len(grid) == 2
        assert grid[1] < 65536  # what CUDA allows for the second axis of a grid
        return lambda *args, **options: self.calls.append((args, options))


def machine_code(monkeypatch: Any, module: ModuleType, kernel: str, call: Callable[[], Any], capability: int) -> Any:
    """What Triton makes of the first launch of `module.kernel` in `call`, for NVIDIA's compute capability."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    launches = Launches(getattr(module, kernel))
    with monkeypatch.context() as patch:
        patch.setattr(module, kernel, launches)
        call()
    args, options = launches.calls[0]
    names = launches.kernel.arg_names
    given = dict(zip(names, args, strict=False)) | {name: options[name] for name in names if name in options}
    assert given.keys() == set(names)
    # Triton takes 1 and None as constants too, and notes which addresses and numbers are multiples of 16.
    constants, signature, attributes = {}, {}, {}
    for place, name in enumerate(names):
        value = given[name]
        if name in options or value is None or (isinstance(value, int) and value == 1):
            constants[(place,)], signature[name] = value, "constexpr"
            continue
        signature[name] = _TYPES[value.dtype] if isinstance(value, torch.Tensor) else "i32"
        if isinstance(value, torch.Tensor) or value % 16 == 0:
            attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=launches.kernel, signature=signature, constexprs=constants, attrs=attributes)
    rest = {name: value for name, value in options.items() if name not in names}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=rest)
