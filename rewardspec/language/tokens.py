"""Reward tokens: the section `condition:` of a spec (RC-GRPO, arXiv:2602.03025, Sec. 3)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from rewardspec.language.declarations import RewardTokens
from rewardspec.language.scalars import read_expression, read_literal
from rewardspec.language.shape import Block
from rewardspec.syntax.expression import KEYWORDS, NAME
from rewardspec.syntax.yaml import Scalar
from rewardspec.text.diagnostics import Report, did_you_mean, shorten
from rewardspec.text.numbers import format_number


def read_reward_tokens(section: Block, report: Report) -> RewardTokens:
    """The reward tokens of a spec; all mistakes in them are reported."""
    place = section.place
    tokens = dict(section.block("tokens").ones())
    names = list(tokens)
    if len(names) < 2:
        report.error(
            "too-few-tokens",
            "`tokens` needs at least two tokens",
            place["tokens"].name,
            help="write `tokens: {high: <|high_reward|>, low: <|low_reward|>}`",
        )
    _check_tokens(tokens, section, report)
    _check_names(names, section, report)
    labels = {name: read_expression(scalar, report) for name, scalar in section.block("label").ones()}
    return RewardTokens(
        place.value,
        {name: text.text for name, text in tokens.items()},
        _prior(dict(section.block("prior").ones()), names, report),
        {name: expr for name, expr in labels.items() if expr is not None},
        _template(section, report),
    )


def _check_tokens(tokens: Mapping[str, Scalar], section: Block, report: Report) -> None:
    """Report tokens with an invalid name, an empty text, or the text of another token."""
    for name, text in tokens.items():
        key = section.place["tokens"][name].name
        if not NAME.match(name) or name in KEYWORDS:
            report.error("bad-name", f"`{shorten(name)}` is not a valid name", key)
        twin = next(n for n, other in tokens.items() if other.text == text.text)
        if not text.text or twin != name:
            message = f"`{name}` and `{twin}` have the same text" if text.text else f"`{name}` has no text"
            report.error("duplicate-token", message, text.span if text.text else key)


def _check_names(names: list[str], section: Block, report: Report) -> None:
    """Report names under `prior` and `label` that are not tokens, and tokens that they lack (all but the last)."""
    last = names[-1] if names else None
    for part in ("prior", "label"):
        named = section.block(part)
        for name in named.held:
            if name not in names:
                span, help = named.place[name].name, did_you_mean(name, names)
                report.error("unknown-token", f"unknown token `{shorten(name)}`", span, help=help)
        missing = [name for name in names[:-1] if name not in named]
        if missing and (part == "prior" or named.held):
            report.error(
                "missing-token",
                f"`{part}` has no entry for `{missing[0]}`",
                section.place[part].name,
                help=f"add `{missing[0]}`: only the last token, `{last}`, is optional, and gets the rest",
            )
    if last is not None and last in section.block("label"):
        span = section.block("label").place[last].name
        message = f"the last token, `{last}`, needs no label: it goes where no other label is true"
        report.error("rest", message, span, help=f"remove `{last}`")


def _prior(section: Mapping[str, Scalar], names: list[str], report: Report) -> dict[str, Fraction]:
    """The probability of every token; the last one defaults to the rest."""
    prior: dict[str, Fraction] = {}
    for name, scalar in section.items():
        value = read_literal(scalar, report)
        if isinstance(value, Fraction) and 0 <= value <= 1:
            prior[name] = value
        elif value is not None:
            message = f"`{shorten(scalar.text)}` is not a probability"
            report.error("not-a-probability", message, scalar.span, help="write a number from 0 to 1")
    whole = sum(prior.values(), Fraction(0))
    if len(prior) == len(section) and (whole > 1 or (len(prior) == len(names) and whole != 1)):
        spans = [scalar.span for scalar in section.values()]
        report.error(
            "not-a-probability",
            f"the probabilities sum to {format_number(whole)}",
            spans[0].to(spans[-1]),
            help=f"the sum must be {'1' if len(prior) == len(names) else 'at most 1'}",
        )
    return {name: prior.get(name, 1 - whole) for name in names}


def _template(section: Block, report: Report) -> str:
    """The text around prompt and token; a template without `{prompt}` goes on the line after it."""
    written = section.one("template")
    assert written is not None, "`template` is required"
    template = written.text
    if template.count("{token}") != 1 or template.count("{prompt}") > 1:
        report.error(
            "template",
            "a template needs one `{token}` and at most one `{prompt}`",
            written.span,
            help='write `template: "[Reward Goal: {token}]"`',
        )
    return template if "{prompt}" in template else "{prompt}\n" + template
