"""A spec comes to the same text in every process: nothing hangs on hashes, or on where things lie in memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[1] / "cases" / "findings"
FILES = (
    "schedule-out-of-reach",
    "gate-on-moving-scale",
    "advantage-undefined",
    "missing-silences-group",
    "tiny-divisor",
)

PROGRAM = """
import hashlib, re, sys
from pathlib import Path

import pytest
import rewardspec

shift = int(sys.argv[1])
kept = [bytes(shift * k % 4000) for k in range(3000)][::2]  # memory is laid out otherwise from here on
for name in sys.argv[2:]:
    for i, found in enumerate(re.finditer(r"```yaml\\n(.*?)```", Path(name).read_text(encoding="utf-8"), re.S)):
        junk = [object() for _ in range(shift * 7 + i)]
        try:
            spec = rewardspec.loads(found[1], "spec.yaml")
            text = spec.python + spec.fingerprint + "".join(d.render() for d in spec.diagnostics)
        except rewardspec.SpecError as error:
            text = "".join(d.render() for d in error.diagnostics)
        print(Path(name).stem, i, hashlib.sha256(text.encode()).hexdigest()[:12])
"""

EXTRA = """```yaml
rewardspec: 1
components:
  a: {range: [-1, 1]}
  b: {values: [0, 1], when: a > 0 and a >= 0 and step > 3 and progress > 0.5, weight: "log(step) if step > 3 else 0"}
  c: {expr: "1 / (a - b) if a > b and a >= 0 and b < 1 else sqrt(a) if a >= 0 and b == 0 else 0"}
  d: {expr: "a * b - b * a + c - raw(a)", when: a > 0.1 or b == 1, otherwise: ignore}
advantage: center(a + b) + zscore(d) - mean(c)
```
"""


@pytest.mark.slow
def test_a_spec_comes_to_the_same_text_in_every_process(tmp_path):
    (tmp_path / "extra.md").write_text(EXTRA)
    files = [str(CASES / f"{name}.md") for name in FILES]
    said = set()
    for shift in (0, 1, 13):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(shift), *files, str(tmp_path / "extra.md")],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(shift)},
        )
        assert done.returncode == 0, done.stderr
        said.add(done.stdout)
    first, *others = (text.splitlines() for text in said)
    for other in others:
        assert [a for a, b in zip(first, other, strict=True) if a != b] == []
