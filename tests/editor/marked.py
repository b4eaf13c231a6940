"""Texts with a `|` at the cursor, and what the functions of `rewardspec.editor` say there."""

from rewardspec.editor.completion import completions
from rewardspec.editor.document import Document
from rewardspec.editor.hover import hover

HEAD = "rewardspec: 1\n"
SPEC = """rewardspec: 1
lists:
  turn: {ordered: true}
signals:
  tokens: {range: [0, .inf]}
  task: {values: [math, code]}
  prompt: {id: true, level: group}
components:
  correct: {values: [0, 1]}
  length: {expr: tokens <= limit, when: correct >= 1, weight: 0.5}
define:
  limit: 4000
  half(x, y=1): 0.5 * x * y
advantage: grpo
"""


def split(marked, mark="|"):
    """The document, and the offset of the mark."""
    before, _, after = marked.partition(mark)
    return Document(before + after), len(before)


def proposed(marked, mark="|"):
    """The labels of the proposals at the mark, in order."""
    return [item.label for item in completions(*split(marked, mark))]


def told(marked, mark="|"):
    """The Markdown at the mark; empty for none."""
    found = hover(*split(marked, mark))
    return "" if found is None else found.markdown
