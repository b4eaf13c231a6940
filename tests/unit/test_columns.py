"""What callers may pass for columns and groups."""

import numpy as np
import pytest
import torch

import rewardspec


def compiled(body):
    return rewardspec.compile(rewardspec.loads("rewardspec: 1\n" + body))


def test_every_kind_of_column_and_group_id():
    fn = compiled("components: {a: {values: [0, 1]}}\nadvantage: grpo\n")
    expected = [-0.7071, 0.7071]
    for column in ([0, 1], [False, True], np.array([0, 1]), np.array([0.0, 1.0]), torch.tensor([0, 1]), (0.0, 1.0)):
        for groups in (
            2,
            ["x", "x"],
            [None, None],
            np.array(["p", "p"]),
            np.array([7, 7]),
            torch.tensor([3, 3]),
            [(1, 2), (1, 2)],
        ):
            assert fn({"a": column}, groups).advantages.tolist() == pytest.approx(expected, abs=1e-4)


def test_empty_batch():
    out = compiled("components: {a: {values: [0, 1]}}\nadvantage: gdpo\n")({"a": []}, 4)
    assert out.advantages.shape == (0,)
    assert out.metrics() == {}


def test_one_group_size_of_any_integer_kind():
    fn = compiled("components: {a: {values: [0, 1]}}\nadvantage: grpo\n")
    for size in (2, np.int64(2), torch.tensor(2)):
        assert fn({"a": [0, 1, 1, 1]}, size).advantages[2:].tolist() == [0, 0]
