"""The options of `rewardspec score` about judges: limits, a budget and prices, as an account."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

from rewardspec.cli.printing.lines import misuse
from rewardspec.rewards.judge.account import Account, Budget, Limits, Price
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import did_you_mean

PARTS = tuple(part.name for part in fields(Budget))
ANY = "*"  # every model without a price of its own


def account_of(budget: Sequence[str], prices: Sequence[str], requests: float | None, tokens: float | None) -> Account:
    """The account that options describe. What cannot be read ends the command, with all of it."""
    wrong: list[str] = []
    account = Account(Limits(requests, tokens), _budget(budget, wrong), _prices(prices, wrong))
    if wrong:
        misuse("\n".join(wrong))
    return account


def check_account(spec: Spec, account: Account) -> None:
    """End the command for options that would be ignored, or that cannot be held."""
    own = [name for name, use in spec.uses.items() if use.python is not None]
    judges = {
        name: str(use.options.get("model"))
        for name, use in spec.uses.items()
        if use.reward is not None and use.reward.calls is not None
    }
    given = {
        "--requests-per-minute": account.limits.requests is not None,
        "--tokens-per-minute": account.limits.tokens is not None,
        "--budget": account.budget != Budget(),
        "--price": bool(account.prices),
    }
    named = [option for option, is_given in given.items() if is_given]
    if named and not judges and not own:
        misuse(f"{' and '.join(named)}: the spec has no judge")
    for model in account.prices:
        if model != ANY and judges and not own and model not in judges.values():
            near = did_you_mean(model, judges.values(), f"there are {', '.join(dict.fromkeys(judges.values()))}")
            misuse(f"--price {model}: no judge is this model; {near}")
    if account.budget.cost is not None:
        unknown = [model for model in dict.fromkeys(judges.values()) if account.price(model) is None]
        if unknown:
            misuse("\n".join(f"--budget cost needs the price of {model}: --price {model}=IN,OUT" for model in unknown))


def _budget(given: Sequence[str], wrong: list[str]) -> Budget:
    found: dict[str, float] = {}
    for part in (part for text in given for part in text.split(",")):
        name, _, text = (word.strip() for word in part.partition("="))
        number = _number(text)
        if name not in PARTS:
            near = did_you_mean(name, PARTS, f"there are {', '.join(PARTS)}")
            wrong.append(f"--budget {part.strip()}: a budget has no `{name}`; {near}")
        elif number is None:
            wrong.append(f"--budget {part.strip()}: write a number that is not negative, such as {name}=100")
        else:
            found[name] = number
    return Budget(**found)


def _prices(given: Sequence[str], wrong: list[str]) -> dict[str, Price]:
    found: dict[str, Price] = {}
    for text in given:
        model, equals, numbers = text.rpartition("=")
        parts = [_number(part) for part in numbers.split(",")]
        known = [part for part in parts if part is not None]
        if len(parts) != 2 or len(known) != 2 or (equals and not model.strip()):
            wrong.append(f"--price {text}: write the price of a million tokens, read and written: 0.15,0.60")
        else:
            found[model.strip() or ANY] = Price(*known)
    return found


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
