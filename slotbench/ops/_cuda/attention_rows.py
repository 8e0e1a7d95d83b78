"""How many slots, heads and dimensions the inverted attention in Triton takes; needs no Triton."""

from __future__ import annotations

from slotbench.ops._cuda.launching import power_of_two

__all__ = ["padded_rows", "too_large"]

_NUMBERS = 2**14  # of rows times dimensions: 64 per thread of 8 warps, twice in the backward


def padded_rows(heads: int, slots: int, dim: int) -> tuple[int, int, int]:
    """Heads, slots and dimensions filled up to powers of two, such that a product of matrices takes them."""
    of_heads = power_of_two(heads)
    return of_heads, max(power_of_two(slots), 16 // of_heads), max(16, power_of_two(dim))


def too_large(heads: int, slots: int, dim: int) -> str | None:
    """Why the rows of a step do not fit into registers, or None."""
    of_heads, of_slots, dims = padded_rows(heads, slots, dim)
    if of_heads * of_slots * dims <= _NUMBERS:
        return None
    return (
        f"keeps heads x slots x token_dim, each filled up to a power of two, in registers, at most {_NUMBERS} numbers, "
        f"and {heads} x {slots} x {dim} make {of_heads * of_slots * dims}: use kernel='auto'"
    )
