"""Completions in a file, scored by the reward functions of a spec, with the advantages that come of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewardspec.analysis.replay import ALIASES, GROUP_KEYS, STEP_KEYS, BadLog, hashable, listed, read_parquet
from rewardspec.compiler import Spec, compile
from rewardspec.diagnostics import did_you_mean, shorten
from rewardspec.rewards.scorer import Scorer

CHUNK = 256  # rows between two writes of what is done


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
) -> Summary:
    """Score the rows of `source` (JSON lines or Parquet) into `output` (by its suffix), and say what came of them.

    Every row keeps what it had, and gets a value for each column of the spec and its `advantage` among the good rows of
    its group. Rows that cannot be scored go to `output` with `.bad.jsonl` in place of its suffix, each with its number
    and the reason. What is done is kept beside `output` until the end, and taken up again by the same spec on the
    same file. progress: called with how many rows are done, of how many. Raises BadLog, ScoringError, OSError.
    """
    scorer = Scorer(spec)
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
    good = []
    for number, (row, outcome) in enumerate(zip(rows, scores, strict=True), 1):
        if isinstance(outcome, str):
            summary.bad.append((number, outcome))
        else:
            good.append({**row, **outcome})
    summary.scored = len(good)
    for name in scorer.names:
        present = [row[name] for row in good if row[name] is not None]
        summary.missing[name] = len(good) - len(present)
        summary.mean[name] = sum(present) / len(present) if present else float("nan")
    if good:
        try:
            summary.groups = _add_advantages(spec, good, key, measured, total_steps)
        except BadLog as error:  # what was measured may have cost hours: it is not thrown away
            _write(output, good)
            raise BadLog(f"{error}\nthe rewards alone are in {output}") from None
        _write(output, good)
    _set_aside(output, rows, summary.bad)
    state.unlink()
    return summary


def read_rows(path: Path) -> Iterator[dict | str]:
    """The rows of a file; for a line that is no JSON object the reason. Raises BadLog, OSError."""
    if path.suffix.lower() in (".parquet", ".pq"):
        yield from read_parquet(path)
        return
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                yield "an empty line"
                continue
            try:
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except (ValueError, RecursionError) as error:
                yield f"not JSON: {shorten(str(error), 80)}"
                continue
            yield row if isinstance(row, dict) else "a JSON object is wanted, one for each rollout"


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


def _chunk(scorer: Scorer, rows: Sequence[dict | str], measured: Mapping[str, str]) -> list[dict | str]:
    """For each row what was measured, or why it could not be."""
    good = [
        {**row, **{name: row.get(held) for name, held in measured.items()}} for row in rows if isinstance(row, dict)
    ]
    lacking = [i for i, row in enumerate(good) if row.get("completion") is None]
    found = scorer.measure([{**row, "completion": ""} if i in lacking else row for i, row in enumerate(good)])
    outcomes = []
    for i in range(len(good)):
        if i in lacking:
            outcomes.append("there is no `completion`")
        else:
            outcomes.append(found.bad.get(i) or {name: values[i] for name, values in found.columns.items()})
    left = iter(outcomes)
    return [next(left) if isinstance(row, dict) else row for row in rows]


def _add_advantages(
    spec: Spec, rows: list[dict], key: str, measured: Mapping[str, str], total_steps: int | None
) -> int:
    """Give every row its `advantage`, step by step, and say how many groups there are. Raises BadLog."""
    fn = compile(spec)
    step_key = next((name for name in STEP_KEYS if any(name in row for row in rows)), None)
    places: dict[object, list[int]] = {}
    for i, row in enumerate(rows):
        places.setdefault(hashable(row.get(step_key)) if step_key else None, []).append(i)
    last = total_steps or max((s for s in places if isinstance(s, int)), default=None)
    groups = 0
    for step, chosen in places.items():
        ids = [hashable(rows[i].get(key)) for i in chosen]
        columns = {name: [rows[i].get(measured.get(name, name)) for i in chosen] for name in spec.columns}
        try:
            out = fn(columns, ids, step=step if isinstance(step, int) else None, total_steps=last)
        except ValueError as error:
            raise BadLog(f"the rewards are scored, but not their advantages: {error}") from None
        groups += len(set(ids))
        for i, advantage in zip(chosen, out.advantages.tolist(), strict=True):
            rows[i]["advantage"] = advantage
    return groups


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
    columns = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        try:
            columns[str(name)] = pyarrow.array(values)
        except (pyarrow.ArrowException, UnicodeEncodeError, OverflowError):  # values of several kinds: as JSON text
            columns[str(name)] = pyarrow.array([None if v is None else json.dumps(v, default=str) for v in values])
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def _set_aside(output: Path, rows: Sequence[dict | str], bad: Sequence[tuple[int, str]]) -> None:
    aside = output.with_suffix(".bad.jsonl")
    if not bad:
        aside.unlink(missing_ok=True)
        return
    with open(aside, "w", encoding="utf-8", newline="\n") as out:
        for number, reason in bad:
            row = rows[number - 1]
            out.write(
                json.dumps(
                    {"row": number, "reason": reason, "rollout": row if isinstance(row, dict) else None}, default=str
                )
                + "\n"
            )
