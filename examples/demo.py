"""Check, compile, run and count the published set-ups of GDPO (arXiv:2601.05242), then compare schemes on a log.

Run it with `make demo`, or `python examples/demo.py` where rewardspec is installed.
"""

import log_comparison  # beside this file
from rich.console import Console
from rich.table import Table

import rewardspec
from rewardspec.prove.replay import BadLog
from rewardspec.prove.simulate import count_groups
from rewardspec.resources import resource

console = Console(width=100)
SPECS = sorted(resource("specs/gdpo").glob("*.yaml"))

# Two prompts, four rollouts each. Prompt 0 has two right answers, one of them too long.
ROLLOUTS = {
    "correct": [1, 1, 0, 0, 0, 0, 0, 0],
    "tokens": [900, 5200, 700, 6100, 800, 5000, 5100, 900],
    "format": [1, 0, 1, 0, 1, 1, 0, 1],
    "correctness": [3, 1.5, -3, -3, -3, 0.2, -1, -3],
    "pass_rate": [1, 1, 0.4, 0, 0.2, 0, 0, 0],
    "no_error": [1, 1, 1, 0, 1, 0, 0, 1],
}


def numbers(values) -> str:
    return "  ".join(f"{v:+.3f}" for v in values)


for path in SPECS:
    spec = rewardspec.load(path)  # raises SpecError here, with every error at once
    fn = rewardspec.compile(spec)
    out = fn({name: ROLLOUTS[name] for name in spec.columns}, groups=4)
    console.rule(f"[bold]{spec.name}[/]: {', '.join(spec.components)}", align="left")
    console.print("advantages ", numbers(out.advantages), highlight=False)
    for name, share in out.shares.items():
        console.print(f"  of which {name:12}", numbers(share), highlight=False)
    metrics = out.metrics()
    console.print(f"rollouts without signal: {metrics['rollouts_without_signal']:.0%}\n", highlight=False)

TABLES = (
    ("Two binary rewards: distinct advantage groups by group size", range(2, 9), lambda g: (2, g)),
    ("Groups of 4: distinct advantage groups by number of binary rewards", range(1, 5), lambda n: (n, 4)),
)
SCHEMES = {"GRPO": "grpo", "GRPO without std": "dr_grpo", "GDPO": "gdpo"}

for title, columns, case in TABLES:
    console.print(f"[bold]{title}[/]", highlight=False)
    table = Table()
    table.add_column("")
    for column in columns:
        table.add_column(str(column), justify="right")
    for label, scheme in SCHEMES.items():
        cells = []
        for column in columns:
            rewards, size = case(column)
            components = "\n".join(f"  r{i}: {{values: [0, 1]}}" for i in range(rewards))
            spec = rewardspec.loads(f"rewardspec: 1\ncomponents:\n{components}\nadvantage: {scheme}\n")
            count = count_groups(spec.program, label, size)
            assert count.exact
            cells.append(str(count.advantage_groups))
        table.add_row(label, *cells)
    console.print(table)

try:
    log_comparison.show(console)
except (BadLog, OSError) as error:
    raise SystemExit(f"the rollout log cannot be read: {error}") from None
