"""Tokens and images are two views of one piece of memory."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from slotbench.interfaces import TokenSpec
from slotbench.nn.grid import grid_of, to_images, to_tokens

SIZES = st.integers(1, 4)


@given(batch=SIZES, time=SIZES, rows=SIZES, cols=SIZES, dim=SIZES)
def test_images_and_back_is_the_identity(batch, time, rows, cols, dim):
    tokens = torch.randn(batch, time, rows * cols, dim)
    images = to_images(tokens, (rows, cols))
    assert images.shape == (batch * time, dim, rows, cols)
    assert torch.equal(to_tokens(images, batch), tokens)


def test_token_r_c_of_step_t_is_pixel_r_c_of_image_t():
    tokens = torch.randn(2, 3, 6, 5)
    images = to_images(tokens, (2, 3))
    assert torch.equal(images[1 * 3 + 2, :, 1, 0], tokens[1, 2, 1 * 3 + 0])


def test_no_copy_is_made_and_the_images_are_channels_last():
    tokens = torch.randn(2, 3, 6, 5)
    images = to_images(tokens, (2, 3))
    assert images.data_ptr() == tokens.data_ptr()
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert to_tokens(images, 2).data_ptr() == tokens.data_ptr()


def test_tokens_without_a_grid_are_one_row():
    assert grid_of(TokenSpec(dim=3, num_tokens=6)) == (1, 6)
    assert grid_of(TokenSpec(dim=3, num_tokens=6, grid=(2, 3))) == (2, 3)
