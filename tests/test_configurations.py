"""Short names of settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotbench.configurations import shortest_keys


@pytest.mark.parametrize(
    ("keys", "short"),
    [
        (["model.core.dim", "data.size"], ["dim", "size"]),
        (["model.core.dim", "model.encoder.dim", "data.loader.seed"], ["core.dim", "encoder.dim", "seed"]),
        (["model.core", "model.core.dim"], ["core", "dim"]),
        (["a.b.c", "b.c"], ["a.b.c", "b.c"]),
        (["dim", "core.dim"], ["dim", "core.dim"]),
        (["optimizer.betas.0", "data.size"], ["betas.0", "size"]),
    ],
)
def test_keys_are_as_short_as_they_can_be(keys, short):
    assert list(shortest_keys(keys).values()) == short


@given(st.sets(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join), min_size=1))
def test_short_keys_are_ends_of_one_key_each(keys):
    names = shortest_keys(sorted(keys))
    assert len(set(names.values())) == len(keys)
    assert all(key == name or key.endswith(f".{name}") for key, name in names.items())
