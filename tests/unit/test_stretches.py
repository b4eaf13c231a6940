"""Items of a list and the tokens that the model wrote for them, against loops over tokens."""

import itertools

import pytest
import torch

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.stretches import check_stretches, counted, onto_tokens, stretches, tokens_of


def by_hand(row):
    """The runs of 1, as lists of places."""
    places = [list(run) for written, run in itertools.groupby(range(len(row)), key=lambda t: row[t]) if written]
    return [next((k for k, run in enumerate(places) if t in run), -1) for t in range(len(row))]


def test_stretches_are_the_runs_of_ones_of_every_mask():
    masks = torch.tensor(list(itertools.product((0, 1), repeat=7)))
    for mask in (masks, masks.bool(), masks.float()):
        found = stretches(mask)
        assert found.tolist() == [by_hand(row) for row in masks.tolist()]
        assert counted(found).tolist() == [len({*by_hand(row)} - {-1}) for row in masks.tolist()]
        runs = [by_hand(row) for row in masks.tolist()]
        assert tokens_of(found).tolist() == [row.count(k) for row in runs for k in range(max(row) + 1)]
    assert counted(stretches(torch.zeros(2, 0))).tolist() == [0, 0]


def test_each_token_gets_the_value_of_its_item():
    masks = torch.tensor(list(itertools.product((0, 1), repeat=7)))
    index = stretches(masks)
    lengths = counted(index)
    values = torch.arange(1.0, lengths.sum() + 1, dtype=torch.float64)
    found = onto_tokens(values, lengths, index)
    assert found.dtype == torch.float64
    items = iter(values.tolist())
    for row, n, tokens in zip(masks.tolist(), lengths.tolist(), found.tolist(), strict=True):
        own = [next(items) for _ in range(n)]
        assert tokens == [own[k] if k >= 0 else 0 for k in by_hand(row)]


def test_a_batch_without_items_has_no_advantages():
    index = stretches(torch.zeros(2, 3))
    assert onto_tokens(torch.zeros(0), torch.zeros(2, dtype=torch.long), index).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_rollouts_that_do_not_match_are_named_with_both_counts():
    lengths = torch.tensor([2, 1, 0, 3, 4, 5])
    check_stretches("turn", lengths, lengths.clone())
    with pytest.raises(BindingError) as caught:
        check_stretches("turn", lengths, torch.tensor([2, 2, 1, 3, 4, 5]))
    lines = str(caught.value).splitlines()
    assert lines[0] == "rollout 1 has 1 item of the list `turn`, and the model wrote 2 stretches of tokens"
    assert lines[1] == "rollout 2 has 0 items of the list `turn`, and the model wrote 1 stretch of tokens"
    assert "sum(x, over=rollout)" in lines[2] and len(lines) == 3
    with pytest.raises(BindingError, match="rollout 1 of group b has 1 item of"):
        check_stretches("turn", lengths, torch.tensor([2, 2, 0, 3, 4, 5]), groups=list("abcdef"))
    with pytest.raises(BindingError, match="so it is with 3 further rollouts of 6"):
        check_stretches("turn", lengths, torch.full((6,), 9))


def test_rollouts_that_the_trainer_hides_are_not_compared():
    lengths, found = torch.tensor([2, 1]), torch.tensor([0, 1])
    check_stretches("turn", lengths, found, hidden=torch.tensor([True, False]))
    with pytest.raises(BindingError, match="rollout 0 has 2 items"):
        check_stretches("turn", lengths, found, hidden=torch.tensor([False, True]))
