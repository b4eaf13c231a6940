"""Completions in a file, scored by the reward functions of a spec, with the advantages that come of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewardspec.analysis.replay import (
    ALIASES,
    GROUP_KEYS,
    JSON_TEXT,
    STEP_KEYS,
    BadLog,
    hashable,
    listed,
    read_parquet,
)
from rewardspec.compiler import Spec, compile
from rewardspec.diagnostics import did_you_mean, shorten
from rewardspec.rewards.permission import Allowed
from rewardspec.rewards.scorer import Scorer

CHUNK = 256  # rows between two writes of what is done
DEEPEST = 100  # lists and mappings in each other


@dataclass
class Summary:
    """What became of a file. `bad` holds (row, reason); rows count from 1, as lines do."""

    scored: int = 0
    resumed: int = 0
    bad: list[tuple[int, str]] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)  # rows without a value, a column at a time
    mean: dict[str, float] = field(default_factory=dict)
    groups: int = 0


def score(
    spec: Spec,
    source: Path,
    output: Path,
    group_by: str | None = None,
    total_steps: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    allow_python: Allowed = False,
) -> Summary:
    """Score the rows of `source` (JSON lines or Parquet) into `output` (by its suffix), and say what came of them.

    Every row keeps what it had, and gets a value for each column of the spec and its `advantage` among the good rows of
    its group. Rows that cannot be scored go to `output` with `.bad.jsonl` in place of its suffix, each with its number
    and the reason. What is done is kept beside `output` until the end, and taken up again by the same spec on the
    same file. progress: called with how many rows are done, of how many. Raises BadLog, ScoringError, OSError.
    """
    scorer = Scorer(spec, allow_python)
    rows = list(read_rows(source))
    if not rows:
        raise BadLog(f"{source} holds no rollouts")
    found = list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))
    key = _group_key(source, found, group_by)
    measured = _measured(spec, source, found)
    summary = Summary()
    state = output.with_name(output.name + ".partial")
    scores = _resume(state, _heading(spec, source), len(rows))
    summary.resumed = len(scores)
    with open(state, "a", encoding="utf-8") as done:
        while len(scores) < len(rows):
            progress(len(scores), len(rows))
            first = len(scores)
            for outcome in _chunk(scorer, rows[first : first + CHUNK], measured):
                scores.append(outcome)
                done.write(json.dumps(outcome) + "\n")
            done.flush()
    progress(len(rows), len(rows))
    bad = {i: outcome for i, outcome in enumerate(scores) if isinstance(outcome, str)}
    good = {i: {**rows[i], **outcome} for i, outcome in enumerate(scores) if i not in bad}
    if good:
        try:
            summary.groups = _add_advantages(spec, good, bad, key, measured, total_steps)
        except BadLog as error:  # what was measured may have cost hours: it is not thrown away
            _write(output, list(good.values()))
            raise BadLog(f"{error}\nthe rewards alone are in {output}") from None
        _write(output, list(good.values()))
    summary.bad = [(i + 1, reason) for i, reason in sorted(bad.items())]
    summary.scored = len(good)
    for name in scorer.names:
        present = [row[name] for row in good.values() if row[name] is not None]
        summary.missing[name] = len(good) - len(present)
        summary.mean[name] = sum(present) / len(present) if present else float("nan")
    _set_aside(output, rows, summary.bad)
    state.unlink()
    return summary


@dataclass(frozen=True)
class Unread:
    """A line that holds no rollout, and why."""

    reason: str
    text: str


def read_rows(path: Path) -> Iterator[dict | Unread]:
    """The rows of a file. Raises BadLog, OSError."""
    if path.suffix.lower() in (".parquet", ".pq"):
        yield from read_parquet(path)
        return
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="surrogateescape").rstrip("\r\n")
            if not text.strip():
                yield Unread("an empty line", text)
                continue
            try:
                line.decode()
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                yield Unread(f"not JSON: {shorten(str(error), 80)}", text)
                continue
            if not isinstance(row, dict):
                yield Unread("a JSON object is wanted, one for each rollout", text)
            elif text.count("[") + text.count("{") > DEEPEST and _is_deep(row):
                yield Unread(f"nested more than {DEEPEST} deep", text)
            else:
                yield row


def _is_deep(value: object) -> bool:
    """Whether a value is nested so deeply that it could not be written again."""
    layer = [value]
    for _ in range(DEEPEST):
        inner = [v.values() if isinstance(v, dict) else v for v in layer if isinstance(v, dict | list)]
        layer = [one for values in inner for one in values]
    return any(isinstance(v, dict | list) for v in layer)


def _group_key(source: Path, found: list[str], group_by: str | None) -> str:
    key = group_by or next((key for key in GROUP_KEYS if key in found), None)
    if key is None or key not in found:
        wanted = f"`{group_by}`" if group_by else " or ".join(f"`{k}`" for k in GROUP_KEYS)
        raise BadLog(f"{source} has no column {wanted} that tells groups apart; it has {listed(found)}")
    return key


def _measured(spec: Spec, source: Path, found: list[str]) -> dict[str, str]:
    """The columns of the spec that the file itself holds, and what they are called there. Raises BadLog."""
    names, gaps = {}, []
    for name in spec.columns:
        if name in spec.uses:
            continue
        held = next((n for n in (name, *ALIASES.get(name, ())) if n in found), None)
        if held is None:
            near = did_you_mean(name, found)
            gaps.append(f"`{name}`" + (f" ({near})" if near else ""))
        else:
            names[name] = held
    if gaps:
        raise BadLog(
            f"{source} has no column {', '.join(gaps)}, which {spec.name} reads and no reward function measures; "
            f"it has {listed(found)}"
        )
    return names


def _heading(spec: Spec, source: Path) -> dict:
    """What a run is of: unlike headings are unlike runs."""
    digest = hashlib.sha256()
    with open(source, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"rewardspec": spec.fingerprint, "rows": digest.hexdigest()}


def _resume(state: Path, heading: dict, count: int) -> list:
    """The outcomes of an earlier run of the same spec on the same file that did not end; else a new state."""
    try:
        lines = state.read_text(encoding="utf-8").split("\n")[:-1]  # a line that was cut off has no end
        if lines and json.loads(lines[0]) == heading:
            done = [json.loads(line) for line in lines[1 : count + 1]]
            state.write_text("".join(line + "\n" for line in lines[: count + 1]), encoding="utf-8")
            return done
    except (FileNotFoundError, ValueError):
        pass
    state.write_text(json.dumps(heading) + "\n", encoding="utf-8")
    return []


def _chunk(scorer: Scorer, rows: Sequence[dict | Unread], measured: Mapping[str, str]) -> list[dict | str]:
    """For each row what was measured, or why it could not be."""
    good = [
        {**row, **{name: row.get(held) for name, held in measured.items()}} for row in rows if isinstance(row, dict)
    ]
    lacking = [i for i, row in enumerate(good) if scorer.uses and row.get("completion") is None]
    found = scorer.measure([{**row, "completion": ""} if i in lacking else row for i, row in enumerate(good)])
    outcomes = []
    for i in range(len(good)):
        if i in lacking:
            outcomes.append("there is no `completion`")
        else:
            outcomes.append(found.bad.get(i) or {name: values[i] for name, values in found.columns.items()})
    left = iter(outcomes)
    return [next(left) if isinstance(row, dict) else row.reason for row in rows]


def _add_advantages(
    spec: Spec,
    rows: dict[int, dict],
    bad: dict[int, str],
    key: str,
    measured: Mapping[str, str],
    total_steps: int | None,
) -> int:
    """Give every row its `advantage`, step by step, and say how many groups there are.

    Rows that a spec cannot take at all are moved from `rows` to `bad`, with the reason. Raises BadLog.
    """
    fn = compile(spec)
    step_key = next((name for name in STEP_KEYS if any(name in row for row in rows.values())), None)
    places: dict[object, list[int]] = {}
    for i, row in rows.items():
        places.setdefault(hashable(row.get(step_key)) if step_key else None, []).append(i)
    last = total_steps or max((s for s in places if isinstance(s, int)), default=None)
    groups = 0

    def advantages(step: object, chosen: list[int]) -> list[float]:
        columns = {name: [rows[i].get(measured.get(name, name)) for i in chosen] for name in spec.columns}
        ids = [hashable(rows[i].get(key)) for i in chosen]
        return fn(columns, ids, step=step if isinstance(step, int) else None, total_steps=last).advantages.tolist()

    for step, chosen in places.items():
        try:
            found = advantages(step, chosen)
        except ValueError as error:
            refused = {i: reason for i in chosen if (reason := _refusal(advantages, step, i))}
            chosen = [i for i in chosen if i not in refused]
            if not refused or not chosen:
                raise _without_advantages(error) from None
            bad |= refused
            for i in refused:
                del rows[i]
            try:
                found = advantages(step, chosen)
            except ValueError as error:
                raise _without_advantages(error) from None
        groups += len({hashable(rows[i].get(key)) for i in chosen})
        for i, advantage in zip(chosen, found, strict=True):
            rows[i]["advantage"] = advantage
    return groups


def _refusal(advantages: Callable[[object, list[int]], list[float]], step: object, row: int) -> str:
    """Why a spec cannot take a row by itself; nothing where it can."""
    try:
        advantages(step, [row])
    except ValueError as error:
        return re.sub(r" at rollout 0 of group [^:]*", "", str(error))
    return ""


def _without_advantages(error: ValueError) -> BadLog:
    return BadLog(f"the rewards are scored, but not their advantages: {error}")


def _write(output: Path, rows: list[dict]) -> None:
    """The rows in a file, which has its name only once it is whole."""
    partial = output.with_name(output.name + ".writing")
    if output.suffix.lower() in (".parquet", ".pq"):
        _write_parquet(partial, rows)
    else:
        with open(partial, "w", encoding="utf-8", newline="\n") as out:
            out.writelines(json.dumps(row, default=str) + "\n" for row in rows)
    os.replace(partial, output)


def _write_parquet(path: Path, rows: list[dict]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise BadLog("writing Parquet needs pyarrow: pip install 'rewardspec[logs]'") from None
    columns, fields = [], []
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        try:
            column = pyarrow.array(values)
            whole = not pyarrow.types.is_nested(column.type) or (
                column.to_pylist() == values and not _has_empty_structs(column.type)
            )
        except (pyarrow.ArrowException, UnicodeEncodeError, OverflowError):
            whole = False
        if not whole:  # values of several kinds, or mappings with unlike keys, which would all get all keys
            column = pyarrow.array([None if v is None else json.dumps(v, default=str) for v in values])
        written = str(name).encode("utf-8", "backslashreplace").decode()
        columns.append(column)
        fields.append(pyarrow.field(written, column.type, metadata=None if whole else JSON_TEXT))
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(fields)), path)


def _has_empty_structs(kind) -> bool:
    """Whether a type has a structure without keys in it, which Parquet does not."""
    import pyarrow

    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return (pyarrow.types.is_struct(kind) and not inner) or any(map(_has_empty_structs, inner))


def _set_aside(output: Path, rows: Sequence[dict | Unread], bad: Sequence[tuple[int, str]]) -> None:
    aside = output.with_suffix(".bad.jsonl")
    if not bad:
        aside.unlink(missing_ok=True)
        return
    with open(aside, "w", encoding="utf-8", newline="\n") as out:
        for number, reason in bad:
            row = rows[number - 1]
            held = {"text": row.text} if isinstance(row, Unread) else {"rollout": row}
            out.write(json.dumps({"row": number, "reason": reason, **held}, default=str) + "\n")
