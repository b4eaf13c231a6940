"""Runs notebook.ipynb and writes what its cells show into it, without Jupyter.

    python examples/notebook.py            # in place
    python examples/notebook.py --check    # only runs the cells

A cell shows what it prints, the value of its last line, and the figures that it draws, as in Jupyter.
"""

from __future__ import annotations

import ast
import base64
import json
import sys
from contextlib import chdir, redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

FILE = Path(__file__).with_suffix(".ipynb")


def run(notebook: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """The outputs of each code cell, run in order in `folder`, in the form of a notebook file."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    with chdir(folder):
        for count, cell in enumerate((c for c in notebook["cells"] if c["cell_type"] == "code"), 1):
            out = StringIO()
            with redirect_stdout(out):
                value = _value("".join(cell["source"]), names)
            outputs: list[dict[str, Any]] = []
            if out.getvalue():
                outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(out.getvalue())})
            for number in pyplot.get_fignums():
                outputs.append({"output_type": "display_data", "data": _picture(number), "metadata": {}})
            pyplot.close("all")
            if value is not None:
                data = {"text/plain": _lines(repr(value))}
                if hasattr(value, "_repr_html_"):
                    data["text/html"] = _lines(value._repr_html_())
                outputs.append(
                    {"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": count}
                )
            found.append(outputs)
    return found


def _value(source: str, names: dict[str, Any]) -> Any:
    """The value of the last line of a cell, if that is an expression without a semicolon."""
    tree = ast.parse(source)
    shows = tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";")
    last = tree.body.pop() if shows else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def _picture(number: int) -> dict[str, str]:
    file = BytesIO()
    pyplot.figure(number).savefig(file, format="png", dpi=70, metadata={"Software": None})
    return {"image/png": base64.b64encode(file.getvalue()).decode()}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    notebook = json.loads(FILE.read_text(encoding="utf-8"))
    outputs = run(notebook, FILE.parent)
    if "--check" not in sys.argv:
        for count, (cell, found) in enumerate(
            zip((c for c in notebook["cells"] if c["cell_type"] == "code"), outputs, strict=True), 1
        ):
            cell["outputs"], cell["execution_count"] = found, count
        FILE.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
