"""What the site has besides the pages in docs/: the manual, made from declarations, and pages that lie elsewhere.

mkdocs calls `on_files` and `on_page_markdown`. A link of a page is that of the repository, so that it works there as
well; here it becomes one of the site. A file that is no page, such as a script, is copied beside the pages.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from rewardspec.manual import KINDS, all_pages

ROOT = Path(__file__).parents[1]
ELSEWHERE = {  # pages of the repository, and where the site has them
    "grammar/LANGUAGE.md": "language/reference.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/trl/README.md": "examples/trl.md",
    "examples/agent/README.md": "examples/agent.md",
    "rewardspec/rewards/code/README.md": "code.md",
    "rewardspec/rewards/judge/README.md": "judges.md",
}
FOLDERS = {"specs": "reference/specs/index.md", "specs/dialects": "reference/dialects/index.md"}
TITLES = {"reward": "Reward functions", "spec": "Published specs"}
LINK = re.compile(r"\]\((?!#)([^()\s:]+?)(#[^()\s]*)?\)")
DRAWING = re.compile(r"^!\[[^\]]*\]\(([\w-]+\.svg)\)$", re.M)  # they take the colours of the page
ON_A_HOST = re.compile(r"^> On a code host (?:.*\n)(?:> .*\n)*\n", re.M)  # what a reader of the site need not know
INCLUDED = re.compile(r"^( *)# include (\S+)$", re.M)
FENCED = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.M | re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, uri in ELSEWHERE.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    rows: dict[str, list[str]] = {kind.name: [] for kind in KINDS}
    for page in all_pages():
        path = f"reference/{page.path}"
        up = f"[{_title(page.kind)}]({'../' * page.name.count('/')}index.md)"
        files.append(File.generated(config, path, content=f"{up}\n\n{page.markdown}"))
        rows[page.kind].append(f"| [`{page.name}`]({page.name}.md) | {_cell(page.title)} |")
    for kind in KINDS:
        table = "\n".join(["| | |", "|---|---|", *rows[kind.name]])
        about = f"{kind.about[0].upper()}{kind.about[1:]}. `rewardspec explain NAME` prints a page."
        text = f"# {_title(kind.name)}\n\n{about}\n\n{table}\n"
        files.append(File.generated(config, f"reference/{kind.name}s/index.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    here = next((path for path, at in ELSEWHERE.items() if at == uri), f"docs/{uri}")
    if here.startswith("docs/reference/"):
        return markdown

    markdown = ON_A_HOST.sub("", markdown)

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), found[1]))
        at = _place(target, files, config)
        return found[0] if at is None else f"]({os.path.relpath(at, posixpath.dirname(uri) or '.')}{found[2] or ''})"

    markdown = "".join(_included(part) if fenced else LINK.sub(link, part) for part, fenced in _parts(markdown))
    if uri == "proofs.md":
        markdown += _proofs()
    return DRAWING.sub(lambda found: f"<div>\n{_drawing(posixpath.dirname(uri), found[1])}</div>", markdown)


def _proofs() -> str:
    """A table of the verdicts on every published spec, from proofs.json, which proofs.py writes."""
    lines = ["", "| spec | guarantee | verdict | group sizes |", "|---|---|---|---|"]
    for name, row in json.loads((ROOT / "docs" / "proofs.json").read_text(encoding="utf-8")).items():
        link = f"[`{name}`](reference/specs/{name}.md)"
        for guarantee, (status, *size) in row["verdicts"].items():
            sizes = f"{size[0]}" if size else f"{row['sizes'][0]} to {row['sizes'][1]}"
            lines.append(f"| {link} | {_cell(guarantee)} | {status} | {sizes} |")
            link = ""
    return "\n".join(lines) + "\n"


def _drawing(folder: str, name: str) -> str:
    return (ROOT / "docs" / folder / name).read_text(encoding="utf-8")


def _included(block: str) -> str:
    """A block of code with the file in it that a line `# include PATH` names."""

    def lines(found: re.Match[str]) -> str:
        text = (ROOT / found[2]).read_text(encoding="utf-8").rstrip("\n")
        return "\n".join(f"{found[1]}{line}".rstrip() for line in text.split("\n"))

    return INCLUDED.sub(lines, block)


def _place(target: str, files: Files, config: MkDocsConfig) -> str | None:
    """Where the site has a file of the repository; None if there is none, which mkdocs says."""
    if target in ELSEWHERE or target in FOLDERS:
        return ELSEWHERE.get(target) or FOLDERS[target]
    if (ROOT / target / "README.md").exists() and f"{target}/README.md" in ELSEWHERE:
        return ELSEWHERE[f"{target}/README.md"]
    if target.startswith("rewardspec/lint/rules/"):
        return f"reference/findings/{Path(target).stem.replace('_', '-')}.md"
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if not (ROOT / target).is_file():
        return None
    if files.get_file_from_path(target) is None:
        files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return target


def _parts(markdown: str) -> Iterator[tuple[str, bool]]:
    """The text of a page in pieces, with whether each is a block of code."""
    at = 0
    for found in FENCED.finditer(markdown):
        yield markdown[at : found.start()], False
        yield found[0], True
        at = found.end()
    yield markdown[at:], False


def _title(kind: str) -> str:
    return TITLES.get(kind, f"{kind.capitalize()}s")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
