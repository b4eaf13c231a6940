"""How tests run here, whatever they test: pytest's options of ours, and that no test is skipped without a word."""

import importlib.abc
import sys

import pytest

WORDLESS = {"", "unconditional skip"}  # pytest's own, where a skip gives no reason


def pytest_addoption(parser):
    group = parser.getgroup("rewardspec")
    group.addoption("--regenerate", action="store_true", help="write what is said now into the cases in tests/cases")
    group.addoption(
        "--without",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="run as if the package was not installed (repeatable)",
    )


class Absent(importlib.abc.MetaPathFinder):
    """Finds no package of these names, as where they are not installed."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def pytest_configure(config):
    if config.option.regenerate and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--regenerate writes files: run it in one process")
    if config.option.without:
        sys.meta_path.insert(0, Absent(config.option.without))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and reason(report) in WORDLESS:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} is skipped and does not say why"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if report.skipped and reason(report) in WORDLESS:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} is skipped and does not say why"
    return report


def reason(report):
    """Why it is skipped, as pytest prints it."""
    return report.longrepr[2].removeprefix("Skipped").removeprefix(":").strip()
