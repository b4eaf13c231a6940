"""Proves the guarantees of the published specs, and writes what is found to docs/proofs.json, for docs/proofs.md.

    python docs/proofs.py

Every group up to 16 rollouts where those of 2 and 3 can all be tried; else a search in groups of 2 and 3. A guarantee
that depends on the rest of the batch is undecided. Specs that have not changed since keep their verdicts, unless
`--all` is given.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import rewardspec
from rewardspec.language.published import published_names

FILE = Path(__file__).with_suffix(".json")
SEARCHED, ALL = range(2, 4), range(2, 17)


def proved(spec: rewardspec.Spec, sizes: range = SEARCHED) -> dict[str, Any]:
    """The verdicts on a spec as plain values: status, and the size of the smallest group that breaks a guarantee."""
    verdicts = {
        v.name: [v.status, *([v.counterexample.size] if v.counterexample else [])]
        for v in rewardspec.verify(spec, sizes)
    }
    statuses = {status for status, *_ in verdicts.values()}
    if sizes is SEARCHED and "proved" in statuses and "not refuted" not in statuses:
        return proved(spec, ALL)
    return {"fingerprint": spec.fingerprint, "sizes": [sizes[0], sizes[-1]], "verdicts": verdicts}


def main() -> None:
    known = json.loads(FILE.read_text()) if FILE.exists() and "--all" not in sys.argv else {}
    found = {}
    for name in published_names():
        spec = rewardspec.load(name)
        same = known.get(name, {}).get("fingerprint") == spec.fingerprint
        found[name] = known[name] if same else proved(spec)
        print(name, *found[name]["verdicts"].values(), flush=True)
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
        FILE.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
