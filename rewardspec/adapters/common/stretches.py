"""The tokens of each item of a list: stretches that the model wrote, with what others wrote between them.

It uses methods of tensors and never imports torch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from rewardspec.adapters.common.binding import BindingError

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 3  # rollouts that an error names


def stretches(mask: Tensor) -> Tensor:
    """The stretch that each token belongs to, counted from 0 in each row; -1 for tokens of others and padding.

    mask: [B, T], not 0 for tokens that the model wrote -> [B, T] int64. A stretch is a run of them that cannot be
    extended.

    stretches([[1, 1, 0, 0, 1, 0]]) = [[0, 0, -1, -1, 1, -1]]
    """
    written = mask.bool()
    first = written.clone()
    first[:, 1:] &= ~written[:, :-1]
    return (first.cumsum(1) - 1).masked_fill_(~written, -1)


def counted(index: Tensor) -> Tensor:
    """How many stretches each row of `stretches` has: [B, T] -> [B]."""
    return index.amax(1) + 1 if index.shape[1] else index.new_zeros(len(index))


def tokens_of(index: Tensor) -> Tensor:
    """How many tokens each stretch has, those of all rows one after the other: [B, T] -> [M]."""
    found = counted(index)
    start = (found.cumsum(0) - found).unsqueeze(1)
    return (start + index)[index >= 0].bincount(minlength=int(found.sum()))


def onto_tokens(values: Tensor, lengths: Tensor, index: Tensor) -> Tensor:
    """The value of its item for each token, 0 for tokens outside: [B, T], of the type of `values`.

    values: [M], the items of B rollouts one after the other. lengths: [B], how many each has. index: [B, T], the place
    of each token's item in its rollout, from 0, or -1 (`stretches`). Items without tokens are ignored:
    `check_stretches` finds them.

    onto_tokens([0.5, -1, 2], [2, 1], [[0, -1, 1], [0, 0, -1]]) = [[0.5, 0, -1], [2, 2, 0]]
    """
    if not values.numel():
        return values.new_zeros(index.shape)
    lengths = lengths.to(index.device)
    start = (lengths.cumsum(0) - lengths).unsqueeze(1)
    return values.to(index.device)[(start + index).clamp_(0, len(values) - 1)].masked_fill_(index < 0, 0.0)


def check_stretches(
    name: str,
    lengths: Tensor,
    found: Tensor,
    hidden: Tensor | None = None,
    groups: Sequence[Hashable] | None = None,
) -> None:
    """Raise BindingError unless every rollout has as many stretches of tokens as items of the list `name`.

    lengths: [N], the items of each rollout. found: [N], its stretches (`counted`). hidden: [N], true for rollouts whose
    tokens the trainer hides from the loss, which are not compared. groups: the group of each, for the message.
    """
    wrong = lengths.to(found.device) != found
    if hidden is not None:
        wrong &= ~hidden.to(found.device)
    rows = wrong.nonzero().flatten().tolist()
    if not rows:
        return
    named = [
        f"rollout {row}{'' if groups is None else f' of group {groups[row]}'} has {_count(int(lengths[row]), 'item')} "
        f"of the list `{name}`, and the model wrote {_count(int(found[row]), 'stretch', 'stretches')} of tokens"
        for row in rows[:SHOWN]
    ]
    more = len(rows) - len(named)
    named += [f"so it is with {more} further rollout{'s' * (more > 1)} of {len(found)}"] * (more > 0)
    raise BindingError(
        "\n".join(
            [
                *named,
                f"an advantage of list level goes onto the tokens of its item: measure one value of `{name}` for each "
                f"stretch, or reduce the list in the spec, such as `sum(x, over=rollout)`",
            ]
        )
    )


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or f'{one}s'}"
