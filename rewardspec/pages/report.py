"""The page of a spec alone: what it says, what is found in it, and what can be counted and proved of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction

from rewardspec._version import __version__
from rewardspec.groups.points import ITEMS
from rewardspec.groups.rates import binary_names, policy
from rewardspec.lint import Run, findings
from rewardspec.lint import page as page_of
from rewardspec.ops.effort import MOST_EFFORT, Allowance
from rewardspec.pages.page import page
from rewardspec.pages.texts import MOST_OF_A_SPEC, bounded
from rewardspec.prove.earnings import Earnings, EarningsAt, earnings, earnings_over_run
from rewardspec.prove.explain import Explanation, explain
from rewardspec.prove.simulate import Simulation, count_groups, groups_without_signal
from rewardspec.prove.verify import Verdict, verify
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import Diagnostic

SIZES = (2, 4, 8)  # of groups, if none are asked for
LARGEST_SWEPT = 4  # of groups whose dead share is counted at every rate: a count each
RATES = 11  # from 0 to 1

Progress = Callable[[str], None]  # what is being done


@dataclass(frozen=True)
class Swept:
    """The share of dead groups of one size at a success rate of everything that can have one."""

    rate: float
    group_size: int
    groups_without_signal: float


@dataclass(frozen=True)
class SpecReport:
    """All that the commands say of one spec.

    findings: as `check` has them, without notes. notes: what was not checked, a sentence each. verdicts: as of
    `verify`. counts: as of `simulate`. swept: none if nothing has a success rate. earnings: what each component can
    earn. over_run: the same over a run; empty if nothing changes, or if its length is not known (`unknown` says so).
    """

    spec: Spec
    explanation: Explanation
    findings: tuple[Diagnostic, ...]
    notes: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    counts: tuple[Simulation, ...]
    swept: tuple[Swept, ...]
    earnings: tuple[Earnings, ...]
    over_run: tuple[EarningsAt, ...]
    unknown: str = ""

    def __repr__(self) -> str:
        refuted = sum(verdict.refuted for verdict in self.verdicts)
        return f"<SpecReport of {self.spec.name!r}: {len(self.findings)} findings, {refuted} guarantees refuted>"

    def to_json(self) -> dict[str, object]:
        """Plain values: `name`, `fingerprint`, `about`, and what is said of the spec under the names above."""
        return {
            "name": self.spec.name,
            "fingerprint": self.spec.fingerprint,
            "about": self.spec.about,
            "explanation": self.explanation.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
            "notes": list(self.notes),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "counts": [count.to_json() for count in self.counts],
            "swept": [asdict(row) for row in self.swept],
            "earnings": [asdict(row) for row in self.earnings],
            "over_run": [asdict(row) for row in self.over_run],
            "unknown": self.unknown,
        }


def report(
    spec: Spec,
    sizes: Sequence[int] = SIZES,
    *,
    rates: Mapping[str, Fraction] = {},
    items: int = ITEMS,
    total_steps: int | None = None,
    progress: Progress | None = None,
) -> SpecReport:
    """What can be said of a spec without a run: findings, verdicts, counts, and what its components can earn.

    report(rewardspec.load("specs/gdpo/math.yaml")).counts[0].advantage_groups

    sizes: of groups. rates: success rates of columns or components with two values. items: of a list at most.
    total_steps: the length of training. progress: called with what is being done. Raises ValueError for wrong rates.
    """
    say = progress or (lambda what: None)
    model = policy(spec.program, rates, items)
    say("findings")
    found = findings(spec, Run(rates, sizes if rates else (), total_steps, items))
    say("guarantees")
    verdicts = verify(spec, sizes, items=items) if spec.program.guarantees else []
    given = {"step": Fraction(0), "total_steps": Fraction(total_steps or 1), "progress": Fraction(0)}
    counts = []
    for size in sizes:
        say(f"groups of {size}")
        counts.append(count_groups(spec.program, spec.name, size, given, model=model))
    size = max((size for size in sizes if size <= LARGEST_SWEPT), default=min(sizes))
    swept: list[Swept] = []
    unswept: tuple[str, ...] = ()
    if binary_names(spec.program):
        for rate in (Fraction(i, RATES - 1) for i in range(RATES)):
            say(f"dead groups of {size} at a rate of {float(rate)}")
            at = policy(spec.program, dict.fromkeys(rates or binary_names(spec.program), rate), items)
            dead = groups_without_signal(spec.program, size, given, at, Allowance(MOST_EFFORT // 3))
            if dead is None:
                swept, unswept = [], (f"dead groups of {size} by rate: too many groups, or values, to count them all",)
                break
            swept.append(Swept(float(rate), size, dead))
    over_run, unknown = tuple[EarningsAt, ...](), ""
    try:
        over_run = earnings_over_run(spec, total_steps)
    except ValueError as error:
        unknown = str(error)
    return SpecReport(
        spec,
        explain(spec),
        (*spec.diagnostics, *found.warnings),
        (*(note.message for note in found.notes), *unswept),
        tuple(verdicts),
        tuple(counts),
        tuple(swept),
        earnings(spec),
        over_run,
        unknown,
    )


def report_page(found: SpecReport) -> str:
    """A spec as one HTML file. Raises NoLibrary."""
    codes = dict.fromkeys(finding.code for finding in found.findings)
    data = {
        "kind": "report",
        "version": __version__,
        "heading": "A reward spec",
        "title": found.spec.name,
        "found": found.to_json(),
        "source": bounded(found.spec.source.text, MOST_OF_A_SPEC),
        "rendered": [finding.render() for finding in found.findings],
        "pages": {code: page_of(code) for code in codes},
    }
    return page(f"{found.spec.name}: rewardspec report", data)
