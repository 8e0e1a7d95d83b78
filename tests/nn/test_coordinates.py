"""Cells of a grid know where they are."""

import math

import torch

from slotbench.nn.positions import CoordinateEmbedding, coordinate_grid


def test_ramps_run_from_the_first_to_the_last_cell_rows_first_and_back():
    grid = coordinate_grid("ramps", 3, 5)
    assert grid[1, 3].tolist() == [0.5, 0.75, 0.5, 0.25]
    assert grid[0, 0].tolist() == [0, 0, 1, 1]
    assert grid[2, 4].tolist() == [1, 1, 0, 0]


def test_centres_are_columns_first_and_no_cell_is_at_an_end():
    grid = coordinate_grid("centres", 2, 4)
    root = math.sqrt(2)
    torch.testing.assert_close(grid[0, 3], torch.tensor([0.75 * root, -0.5 * root, -0.75 * root, 0.5 * root]))
    torch.testing.assert_close(grid.flip(0, 1), -grid)


def test_centres_in_an_image_from_0_to_1_are_columns_first_and_back():
    grid = coordinate_grid("unit_centres", 2, 4)
    torch.testing.assert_close(grid[0, 3], torch.tensor([0.875, 0.25, 0.125, 0.75]))


def test_signed_ramps_are_the_two_axes_alone_rows_first():
    grid = coordinate_grid("signed_ramps", 3, 5)
    assert grid.shape == (3, 5, 2)
    assert grid[0, 0].tolist() == [-1, -1]
    assert grid[1, 3].tolist() == [0, 0.5]
    assert CoordinateEmbedding("signed_ramps", 3, 5, 7).linear.in_features == 2


def test_the_embedding_is_linear_in_the_coordinates():
    torch.manual_seed(0)
    embedding = CoordinateEmbedding("ramps", 3, 5, 7)
    torch.nn.init.normal_(embedding.linear.bias)
    image = embedding()
    assert image.shape == (1, 7, 3, 5)
    expected = embedding.linear.weight @ torch.tensor([0.5, 0.75, 0.5, 0.25]) + embedding.linear.bias
    torch.testing.assert_close(image[0, :, 1, 3], expected)
