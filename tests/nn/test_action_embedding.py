"""Every step gets the row of its action."""

import pytest
import torch

from slotbench.nn.action_embedding import ActionEmbedding


def one_hot(*actions, num_actions=4):
    """Actions by index; None is one that is masked."""
    rows = torch.eye(num_actions)
    return torch.stack([torch.zeros(num_actions) if action is None else rows[action] for action in actions])[None]


def test_an_action_has_its_row_and_a_masked_one_the_last():
    embedding = ActionEmbedding(4, 3)
    assert embedding.table.shape == (5, 3)
    told = embedding(one_hot(2, None, 0, 3), batch=1, time=4)
    assert torch.equal(told[0], embedding.table[[2, 4, 0, 3]])


def test_data_without_actions_has_the_first_of_two_rows():
    embedding = ActionEmbedding(0, 3)
    assert embedding.table.shape == (2, 3)
    told = embedding(None, batch=2, time=5)
    assert told.shape == (2, 5, 3)
    assert torch.equal(told, embedding.table[0].expand(2, 5, 3))


def test_the_row_that_was_used_learns():
    embedding = ActionEmbedding(4, 3)
    embedding(one_hot(1, 1, None), batch=1, time=3).sum().backward()
    expected = torch.zeros(5, 3)
    expected[1], expected[4] = 2, 1
    assert torch.equal(embedding.table.grad, expected)


def test_rows_start_with_unit_length_on_average():
    torch.manual_seed(0)
    table = ActionEmbedding(499, 64).table
    assert table.square().sum(dim=1).mean().item() == pytest.approx(1.0, rel=0.05)
