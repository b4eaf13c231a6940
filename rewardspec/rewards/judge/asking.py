"""The requests about rollouts, and the scores in their answers: planned, recalled, asked, asked again in part."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewardspec.rewards.judge.account import estimated, shared
from rewardspec.rewards.judge.answer import find_score, find_verdicts, some_verdicts
from rewardspec.rewards.judge.request import digest
from rewardspec.rewards.judge.template import CRITERIA, filled, numbered
from rewardspec.rewards.reward import Call
from rewardspec.text.shown import shown

if TYPE_CHECKING:
    from rewardspec.rewards.judge.client import Endpoint, Unanswered

_LOG = logging.getLogger(__name__)
_BETWEEN = 0.5  # seconds between two writes of answers to the cache

Scores = tuple[float | None, ...]  # in one answer


@dataclass(frozen=True)
class Rollout:
    """What a judge is shown of a rollout. criteria: empty without a list."""

    prompt: str
    completion: str
    answer: str
    criteria: Sequence[str]


@dataclass(frozen=True)
class Question:
    """A request about a rollout. places: of the scores that its answer has, among those of the rollout."""

    name: str
    places: Sequence[int]


@dataclass(frozen=True)
class Rubric:
    """How rollouts are asked about. text: of the rubric. scores: those that count. per_call: the most criteria at once.

    body: makes the body of a request from its text. folder: of the cache, None for none.
    """

    endpoint: Endpoint
    text: str
    scores: Sequence[float]
    calls: str | None
    per_call: int | None
    body: Callable[[str], dict[str, Any]]
    folder: Path | None


class Plan:
    """The requests about rollouts, each once. requests: bodies by name. asked: the questions about each rollout."""

    def __init__(self, rubric: Rubric, rollouts: Sequence[Rollout]):
        self.rubric, self.rollouts = rubric, rollouts
        self.requests: dict[str, dict[str, Any]] = {}
        self.counts: dict[str, int] = {}  # how many scores the answer to a request should have
        self.asked = [[self._question(i, places) for places in self._places(i)] for i in range(len(rollouts))]

    def recalled(self) -> list[Call]:
        """The requests as they would be sent, with whether the cache has their answers."""
        from rewardspec.rewards.judge.cache import recall, there

        folder = self.rubric.folder
        held = recall(folder, self.requests) if folder is not None and there(folder) else None
        known = self._scores(held or {})
        found = []
        for name, body in self.requests.items():
            prompt, most = estimated(json.dumps(body).encode(), body)
            found.append(Call(name, str(body["model"]), prompt, most, name in known, folder is not None))
        return found

    def scores(self) -> list[list[float | None]]:
        """The scores of each rollout, from the cache or the endpoint; with `per_call`, missing ones are asked again."""
        found, missing = self._asked(self.requests)
        if self.rubric.per_call is not None:
            again = [self._again(i, found, missing) for i in range(len(self.rollouts))]
            new = {q.name: self.requests[q.name] for several in again for q in several}
            new = {name: body for name, body in new.items() if name not in found and name not in missing}
            if new:
                more, left = self._asked(new)
                found, missing = found | more, missing | left
            self.asked = [[*first, *then] for first, then in zip(self.asked, again, strict=True)]
        scores = [self._put_back(i, found) for i in range(len(self.rollouts))]
        self._warn(scores, missing)
        return scores

    def _places(self, i: int) -> list[Sequence[int]]:
        """The places of scores that each request about a rollout asks for."""
        calls, count = self.rubric.calls, len(self.rollouts[i].criteria)
        if calls is None:
            return [range(1)]
        size = 1 if calls == "each" else self.rubric.per_call or max(count, 1)
        return [range(first, min(first + size, count)) for first in range(0, count, size)]

    def _question(self, i: int, places: Sequence[int]) -> Question:
        rubric, rollout = self.rubric, self.rollouts[i]
        chosen = [rollout.criteria[place] for place in places] if rubric.calls is not None else []
        held = {}
        if rubric.calls is not None:
            held[CRITERIA[rubric.calls]] = chosen[0] if rubric.calls == "each" else numbered(chosen)
        body = rubric.body(filled(rubric.text, rollout.prompt, rollout.completion, rollout.answer, **held))
        name = digest(rubric.endpoint.url, body)
        self.requests[name], self.counts[name] = body, len(places)
        return Question(name, places)

    def _again(self, i: int, found: Mapping[str, Scores], missing: Mapping[str, Unanswered]) -> list[Question]:
        """Questions about the criteria of a rollout that have no score although the endpoint answers.

        Where no criterion of a request has one, in halves: the same request would get the same answer.
        """
        questions = []
        for question in self.asked[i]:
            why = missing.get(question.name)
            lacking = self._lacking(question, found)
            if not lacking or (why is not None and (why.down or not why.sent)):
                continue
            count = len(question.places)
            size = -(-count // 2) if len(lacking) == count else len(lacking)
            if size < count:
                questions += [self._question(i, lacking[at : at + size]) for at in range(0, len(lacking), size)]
        return questions

    def _lacking(self, question: Question, found: Mapping[str, Scores]) -> list[int]:
        scores = found.get(question.name, (None,) * len(question.places))
        return [place for place, score in zip(question.places, scores, strict=True) if score is None]

    def _put_back(self, i: int, found: Mapping[str, Scores]) -> list[float | None]:
        scores: list[float | None] = [None] * (1 if self.rubric.calls is None else len(self.rollouts[i].criteria))
        for question in self.asked[i]:
            for place, score in zip(question.places, found.get(question.name, ()), strict=False):
                if score is not None:
                    scores[place] = score
        return scores

    def _read(self, name: str, said: str) -> Scores | None:
        """The scores in an answer; None if it has none."""
        rubric = self.rubric
        if rubric.calls != "all":
            score = find_score(said, rubric.scores)
            return None if score is None else (score,)
        if rubric.per_call is None:
            return find_verdicts(said, rubric.scores, self.counts[name])
        some = some_verdicts(said, rubric.scores, self.counts[name])
        return some if some is not None and any(score is not None for score in some) else None

    def _scores(self, said: Mapping[str, str]) -> dict[str, Scores]:
        """The scores of the answers that have them."""
        found = {name: self._read(name, answer) for name, answer in said.items()}
        return {name: scores for name, scores in found.items() if scores is not None}

    def _asked(self, requests: Mapping[str, dict[str, Any]]) -> tuple[dict[str, Scores], dict[str, Unanswered]]:
        """The scores of requests, from the cache or the endpoint, and the requests without all scores."""
        from rewardspec.rewards.judge.cache import keep, recall
        from rewardspec.rewards.judge.client import Unanswered, ask_all

        folder = self.rubric.folder
        held = recall(folder, requests) if folder else None
        found = self._scores(held or {})
        for model, count in Counter(str(requests[name]["model"]) for name in found).items():
            shared().recall(model, count)
        said: dict[str, str] = {}
        kept: set[str] = set()
        last = -math.inf

        def keep_new(between: float = 0.0) -> None:
            """Save new answers, if the last save was `between` seconds ago or more: an error must not lose them."""
            nonlocal last
            if folder and held is not None and time.monotonic() - last >= between:
                new = {name: said[name] for name in self._scores({n: a for n, a in said.items() if n not in kept})}
                keep(folder, new)
                kept.update(new)
                last = time.monotonic()

        try:
            left = {name: body for name, body in requests.items() if name not in found}
            missing = ask_all(self.rubric.endpoint, left, said, lambda: keep_new(_BETWEEN))
        finally:
            keep_new()
        fresh = self._scores(said)
        for name in said:
            if name not in fresh or None in fresh[name]:
                all_of = "a score" if name not in fresh else "every score"
                missing[name] = Unanswered(f"answers without {all_of}", said[name][-200:])
        return found | fresh, missing

    def _warn(self, scores: Sequence[Sequence[float | None]], missing: Mapping[str, Unanswered]) -> None:
        """Log one line about what has no score, with the first detail of each cause.

        What a budget stopped is told at the end of a run, by those who set it.
        """
        whole = self.rubric.calls == "all" and self.rubric.per_call is None
        causes: list[Unanswered] = []
        for questions, given in zip(self.asked, scores, strict=True):
            last = {place: missing.get(q.name) for q in questions for place in (q.places[:1] if whole else q.places)}
            causes += [why for place, why in last.items() if why is not None and given[place] is None]
        causes = [why for why in causes if not why.of_the_budget]
        if not causes:
            return
        first = {why.why: why.detail for why in reversed(causes)}
        counted = [
            f"{count} {cause}" + (f" ({first[cause]})" if first[cause] else "")
            for cause, count in Counter(why.why for why in causes).most_common()
        ]
        asked = len([given for given in scores if given]) if whole else sum(map(len, scores))
        what = "rollouts" if whole or self.rubric.calls is None else "criteria"
        url = shown(self.rubric.endpoint.url)
        _LOG.warning("judge at %s: %d of %d %s have no score: %s", url, len(causes), asked, what, "; ".join(counted))
