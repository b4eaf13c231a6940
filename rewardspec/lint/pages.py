"""Pages on what is said outside of the rules: errors of the language, and warnings about `allow:`."""

from __future__ import annotations

from dataclasses import dataclass

from rewardspec.lint.registry import registered


@dataclass(frozen=True)
class Page:
    """What a diagnostic means. is_error: the spec cannot be computed, so that it cannot be allowed."""

    text: str
    is_error: bool = True


def page(code: str) -> str | None:
    """What a finding, or an error that has a page, means; None for any other code."""
    if code in registered():
        return registered()[code].page
    if code not in PAGES:
        return None
    text = PAGES[code].text
    return f"{text}\n\n{_OF_AN_ERROR}" if PAGES[code].is_error else text


def codes() -> list[str]:
    """All codes that have a page."""
    return [*registered(), *PAGES]


_OF_AN_ERROR = "It is an error, so that `allow:` and `--error` have nothing to say of it."

PAGES: dict[str, Page] = {
    "gate-never-opens": Page(
        """A gate that never opens.

`when:` holds for no value that the declared domains allow, so the component counts nowhere: a dead term that looks
alive in the configuration. Most often the threshold is on another scale than the value (0 to 1 against 0 to 100, a
reward that is compared before it is scaled), or a component is compared with what it can only exceed. It follows
from the declared domains.

```yaml
components:
  correct: {values: [0, 1]}
  length: {values: [0, 1], when: correct >= 2}
advantage: grpo
```

Write the threshold on the scale that is declared: `when: correct >= 1`."""
    ),
    "otherwise-needed": Page(
        """A gate on a value that can be below 0, without a word on what it is elsewhere.

Where a gate is closed, a component is 0 unless `otherwise:` says more. For a value in [-3, 3] that is a reward for
not passing the gate: the closed case is worth more than half of the open ones. It is said where small groups show such
a value, or the declared domain has it: `x - min(x)` and `minmax(x)` need no word.

```yaml
components:
  correct: {values: [0, 1]}
  quality: {range: [-3, 3], when: correct >= 1}
advantage: grpo
```

Say it: `otherwise: -3` for the least value, or `otherwise: ignore` where it takes no part (PAPO, Eq. 4)."""
    ),
    "refill-alone": Page(
        """`refill` without `keep`.

`refill` fills the places of groups that leave the batch, and nothing leaves it.

```yaml
components: {correct: {values: [0, 1]}}
refill: var(total, ddof=0)
advantage: grpo
```

Write which groups stay: `keep: var(total, ddof=0) >= 1e-6` (VSPO, DAPO)."""
    ),
    "yaml-comma": Page(
        """An expression that YAML has cut in two.

Inside `{ }` and `[ ]` YAML ends a value at a comma, also within parentheses: `{expr: min(a, 1)}` is the value `min(a`
and a key `1)`. That is YAML 1.2, Sec. 7.3.3.

```yaml
signals: {a: {range: [0, 2]}}
components:
  capped: {expr: min(a, 1)}
advantage: grpo
```

Quote the expression, `{expr: "min(a, 1)"}`, or use the block form, one key a line."""
    ),
    "bundle-left-over": Page(
        """One value for each component, where one value is wanted.

`rewards`, `weights` and what is made of them are one value for each component. The advantage is one for each rollout,
so something has to bring them together: in GDPO (arXiv:2601.05242), Eq. 4 and 7, a sum.

```yaml
components: {correct: {values: [0, 1]}, format: {values: [0, 1]}}
advantage: weights * zscore(rewards)
```

Write `sum(weights * zscore(rewards), over=components)`, or a scheme such as `gdpo`."""
    ),
    "no-reason": Page(
        """An allowance without a reason.

`allow:` silences a finding for good, and whoever reads the spec next has to know whether that still holds. An empty
reason, `null`, `true` or a number says nothing. It is a rule of this language.

```yaml
components:
  solved: {values: [0, 1]}
  format: {values: [0, 1], weight: 0.1}
advantage: gdpo
allow: {phantom-gradient: }
```

Write it in words: `allow: {phantom-gradient: the format is to be learnt first}`."""
    ),
    "unknown-finding": Page(
        """An allowance of a finding that there is not.

Nothing has the code that stands under `allow:`, so nothing is silenced by it: it is misspelt, or of a release that
called it otherwise. It is a rule of this language.

```yaml
components:
  solved: {values: [0, 1]}
advantage: grpo
allow: {phantom-gradiant: the format is to be learnt first}
```

Write a code that `rewardspec list findings` shows, `phantom-gradient`. This warning cannot be allowed itself;
`--error unknown-finding` makes it an error.""",
        is_error=False,
    ),
    "allow-without-effect": Page(
        """An allowance that can silence nothing.

Errors cannot be allowed: what they find cannot be computed. And a component can only allow what is said of it
alone; that a group has no gradient, or that wrong answers are paid, is said of the spec as a whole. It is a rule of
this language.

```yaml
components:
  solved: {values: [0, 1]}
  format: {values: [0, 1], allow: {phantom-gradient: the format is to be learnt first}}
advantage: gdpo
```

Put it under `allow:` of the spec: `allow: {phantom-gradient: the format is to be learnt first}`. This warning cannot be
allowed itself; `--error allow-without-effect` makes it an error.""",
        is_error=False,
    ),
}
