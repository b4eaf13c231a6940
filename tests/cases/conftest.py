"""Cases in Markdown: compared with what is said now, or written anew."""

import re

import pytest


@pytest.fixture
def agrees(request):
    """Compares what a case shows with what is said now; under `--regenerate`, writes it into the case."""

    def compare(path, spec, shown, now):
        shown, now = shown.rstrip("\n"), now.rstrip("\n")
        if request.config.option.regenerate and shown != now:
            case = f"(```yaml\n{re.escape(spec)}```\n+```text\n){re.escape(shown)}(?=\n```\n)"
            text, places = re.subn(case, lambda found: found[1] + now, path.read_text(encoding="utf-8"), count=1)
            assert places
            path.write_text(text, encoding="utf-8")
        else:
            assert now == shown

    return compare
