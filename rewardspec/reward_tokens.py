"""Reward tokens (RC-GRPO, arXiv:2602.03025, Sec. 3): the token of each rollout, and its place in the prompt."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from rewardspec.emit.runtime.philox import uniforms
from rewardspec.language import declarations

PURPOSE = 1  # of the random numbers drawn here; `refill` draws with 0

Message = Mapping[str, object]
Prompt = str | Sequence[Message]


@dataclass(frozen=True)
class RewardTokens:
    """The reward tokens of a spec, from its section `condition:`.

    tokens: text by name. prior: the probability that a rollout gets the token, by name.
    template: the text of the rendered prompt, with `{prompt}` and `{token}`.
    """

    tokens: Mapping[str, str]
    prior: Mapping[str, float]
    template: str

    @classmethod
    def of(cls, declared: declarations.RewardTokens) -> RewardTokens:
        return cls(declared.tokens, {name: float(p) for name, p in declared.prior.items()}, declared.template)

    def __str__(self) -> str:
        """The text that goes into the fingerprint: changing it would change every fingerprint."""
        return f"Condition(tokens={self.tokens!r}, prior={self.prior!r}, template={self.template!r})"

    @property
    def best(self) -> str:
        """The name of the first token, for inference."""
        return next(iter(self.tokens))

    def draw(self, groups: Iterable[Hashable], seed: int, step: int) -> list[str]:
        """The name of a token for every rollout, drawn from the prior (Eq. 3).

        groups: the group id of each rollout of the whole batch. The result is a pure function of seed, step, the index
        of the group and the index of the rollout in its group: equal on every process, in any interleaving of rows.
        """
        upto = list(accumulate(Fraction(p) for p in self.prior.values()))
        names = list(self.tokens)
        members: dict[Hashable, list[int]] = {}
        for i, group in enumerate(groups):
            members.setdefault(group, []).append(i)
        found = [""] * sum(len(rows) for rows in members.values())
        for place, rows in enumerate(members.values()):
            # the runtime has no annotations
            drawn: list[float] = uniforms(len(rows), seed, step, PURPOSE, place)  # type: ignore[no-untyped-call]
            for i, u in zip(rows, drawn, strict=True):
                found[i] = next((name for name, end in zip(names, upto, strict=True) if u < end), names[-1])
        return found

    def render(self, prompt: Prompt, token: str) -> Prompt:
        """The prompt with a token: a text, or chat messages with the token in the first user message.

        token: a name. The prompt that is passed in is not changed. Raises ValueError for an unknown token, or messages
        without a user message.
        """
        if token not in self.tokens:
            raise ValueError(f"unknown reward token {token!r}; the spec has {', '.join(self.tokens)}")
        if isinstance(prompt, str):
            return self._filled(prompt, token)
        messages = [dict(message) for message in prompt]
        for message in messages:
            if message.get("role") == "user":
                message["content"] = self._content(message.get("content"), token)
                return messages
        raise ValueError("there is no user message to put the reward token in")

    def _content(self, content: object, token: str) -> object:
        """The content of a message with the token: a text, or a list of parts with the token in the last text."""
        if isinstance(content, str):
            return self._filled(content, token)
        if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
            raise ValueError("the content of the first user message is neither a text nor a list of parts")
        parts = [dict(part) for part in content]
        texts = [part for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str)]
        if not texts:
            texts = [{"type": "text", "text": ""}]
            parts += texts
        texts[-1]["text"] = self._filled(str(texts[-1]["text"]), token)
        return parts

    def _filled(self, text: str, token: str) -> str:
        before, after = (part.replace("{token}", self.tokens[token]) for part in self.template.split("{prompt}"))
        return before + text + after
