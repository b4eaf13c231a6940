"""Pages about codes that are not rules: errors of the language, and warnings about `allow:`."""

from __future__ import annotations

from dataclasses import dataclass

from rewardspec.lint.registry import registered


@dataclass(frozen=True)
class Page:
    """Markdown about a code. is_error: the code is an error, which cannot be allowed."""

    text: str
    is_error: bool = True


def page(code: str) -> str | None:
    """The page of a finding or an error; None for any other code."""
    if code in registered():
        return registered()[code].page
    if code not in PAGES:
        return None
    text = PAGES[code].text
    return f"{text}\n\n{_OF_AN_ERROR}" if PAGES[code].is_error else text


def codes() -> list[str]:
    """All codes that have a page."""
    return [*registered(), *PAGES]


_OF_AN_ERROR = "It is an error: `allow:` and `--error` do not apply to it."

PAGES: dict[str, Page] = {
    "gate-never-opens": Page(
        """A gate that never opens.

`when:` is true for no value of the declared domains, so the component never counts, although it looks alive in the
configuration. Most often the threshold is on another scale than the value: 0 to 1 against 0 to 100, or a reward that
is compared before it is scaled.

```yaml
components:
  correct: {values: [0, 1]}
  length: {values: [0, 1], when: correct >= 2}
advantage: grpo
```

Write the threshold on the declared scale: `when: correct >= 1`.

It follows from the declared domains."""
    ),
    "otherwise-needed": Page(
        """A gate on a value that can be negative, without `otherwise:`.

If a gate is closed, its component is 0 unless `otherwise:` gives another value. For a value in [-3, 3] that 0 rewards
rollouts that fail the gate: it is worth more than half of the values of an open gate.

The error is reported if small groups have a negative value, or the declared domain does. `x - min(x)` and `minmax(x)`
need no `otherwise:`.

```yaml
components:
  correct: {values: [0, 1]}
  quality: {range: [-3, 3], when: correct >= 1}
advantage: grpo
```

Add `otherwise: -3` for the least value, or `otherwise: ignore` if the component should take no part (PAPO, Eq. 4)."""
    ),
    "refill-alone": Page(
        """`refill` without `keep`.

`refill` fills the places of groups that `keep` drops, and without `keep` no group is dropped.

```yaml
components: {correct: {values: [0, 1]}}
refill: var(total, ddof=0)
advantage: grpo
```

Write which groups are kept: `keep: var(total, ddof=0) >= 1e-6` (VSPO, DAPO)."""
    ),
    "yaml-comma": Page(
        """An expression that YAML splits at a comma.

Inside `{ }` and `[ ]` a comma ends the YAML value, also within parentheses: `{expr: min(a, 1)}` is the value `min(a`
and a key `1)`.

```yaml
signals: {a: {range: [0, 2]}}
components:
  capped: {expr: min(a, 1)}
advantage: grpo
```

Quote the expression, `{expr: "min(a, 1)"}`, or use the block form, one key per line.

It is a rule of YAML 1.2, Sec. 7.3.3."""
    ),
    "bundle-left-over": Page(
        """One value for each component where one value is expected.

`rewards`, `weights` and values computed from them have one value for each component. The advantage has one value for
each rollout, so the components have to be reduced to one: in GDPO (arXiv:2601.05242), Eq. 4 and 7, by a sum.

```yaml
components: {correct: {values: [0, 1]}, format: {values: [0, 1]}}
advantage: weights * zscore(rewards)
```

Write `sum(weights * zscore(rewards), over=components)`, or a scheme such as `gdpo`."""
    ),
    "no-reason": Page(
        """An `allow` entry without a reason.

`allow:` suppresses a finding for good, and the next reader has to know whether the reason still holds. An empty
reason, `null`, `true` or a number gives none.

```yaml
components:
  solved: {values: [0, 1]}
  format: {values: [0, 1], weight: 0.1}
advantage: gdpo
allow: {phantom-gradient: }
```

Write it in words: `allow: {phantom-gradient: the format is to be learnt first}`.

It is a rule of this language."""
    ),
    "unknown-finding": Page(
        """An `allow` entry with an unknown code.

No finding has the code under `allow:`, so the entry suppresses nothing. The code is misspelt, or was renamed in
another release.

```yaml
components:
  solved: {values: [0, 1]}
advantage: grpo
allow: {phantom-gradiant: the format is to be learnt first}
```

Write a code that `rewardspec list findings` shows, `phantom-gradient`. This warning cannot be allowed itself;
`--error unknown-finding` makes it an error.

It is a rule of this language.""",
        is_error=False,
    ),
    "allow-without-effect": Page(
        """An `allow` entry that can suppress nothing.

Errors cannot be allowed: a spec with an error cannot be computed. And a component can allow only findings about that
component. A live group without a right answer, or a wrong answer that outranks a right one, is a finding about the
whole spec.

```yaml
components:
  solved: {values: [0, 1]}
  format: {values: [0, 1], allow: {phantom-gradient: the format is to be learnt first}}
advantage: gdpo
```

Move it to `allow:` of the spec: `allow: {phantom-gradient: the format is to be learnt first}`. This warning cannot be
allowed itself; `--error allow-without-effect` makes it an error.

It is a rule of this language.""",
        is_error=False,
    ),
}
