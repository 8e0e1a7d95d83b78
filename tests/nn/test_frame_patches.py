from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import conv2d, conv_transpose2d

from slotbench.nn.frame_sequence import GridToPatches, PatchesToGrid, patch_shape
from slotbench.nn.grid import to_images, to_tokens


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, int], int]:
    patch = draw(st.integers(1, 3))
    return (patch * draw(st.integers(1, 3)), patch * draw(st.integers(1, 3))), patch


@settings(max_examples=15)
@given(layout=layouts(), batch=st.integers(1, 2), time=st.integers(1, 3))
def test_projection_is_a_convolution_whose_stride_is_its_kernel(layout, batch, time):
    grid, patch = layout
    projection = GridToPatches(5, 7, grid, patch_shape(grid, patch)).double()
    tokens = torch.randn(batch, time, grid[0] * grid[1], 5, dtype=torch.float64)
    # the weight read as (kernel rows, kernel cols, in, out), as the public code stores it
    kernel = projection.linear.weight.T.reshape(patch, patch, 5, 7).permute(3, 2, 0, 1)
    expected = to_tokens(conv2d(to_images(tokens, grid), kernel, stride=patch), batch)
    torch.testing.assert_close(projection(tokens), expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=15)
@given(layout=layouts(), batch=st.integers(1, 2), time=st.integers(1, 3))
def test_the_way_back_is_a_transposed_convolution_whose_stride_is_its_kernel(layout, batch, time):
    grid, patch = layout
    small = (grid[0] // patch, grid[1] // patch)
    way_back = PatchesToGrid(7, 5, grid, patch_shape(grid, patch)).double()
    patches = torch.randn(batch, time, small[0] * small[1], 7, dtype=torch.float64)
    kernel = way_back.linear.weight.reshape(patch, patch, 5, 7).permute(3, 2, 0, 1)
    expected = to_tokens(conv_transpose2d(to_images(patches, small), kernel, stride=patch), batch)
    torch.testing.assert_close(way_back(patches), expected, rtol=1e-12, atol=1e-12)


def test_the_whole_grid_is_one_patch_when_no_size_is_given():
    assert patch_shape((3, 5), None) == (3, 5)
    assert GridToPatches(4, 6, (3, 5), (3, 5))(torch.randn(2, 3, 15, 4)).shape == (2, 3, 1, 6)


def test_weights_start_with_the_fans_of_the_public_code():
    torch.manual_seed(0)
    projection, way_back = GridToPatches(32, 64, (4, 4), (4, 4)), PatchesToGrid(64, 32, (4, 4), (4, 4))
    assert projection.linear.weight.std().item() == pytest.approx(math.sqrt(1 / (16 * 32)), rel=0.02)
    assert way_back.linear.weight.std().item() == pytest.approx(math.sqrt(1 / (16 * 64)), rel=0.02)
    assert projection.linear.bias is None
    assert way_back.linear.bias is None
