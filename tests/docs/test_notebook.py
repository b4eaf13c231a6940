"""The notebook runs, and shows what it says now."""

import importlib.util
import json

import pytest
from places import EXAMPLES

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_pictures(outputs):
    """Outputs as they are on every machine: figures are drawn anew, and a number of texts may round otherwise."""
    return [
        [{**one, "data": ["image"]} if "image/png" in one.get("data", {}) else one for one in cell] for cell in outputs
    ]


@pytest.mark.slow
def test_notebook_runs_and_shows_what_it_says():
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))
    shown = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    now = load("notebook_script").run(notebook, EXAMPLES)
    assert without_pictures(now) == without_pictures(shown), "python examples/notebook.py writes it anew"
    kinds = {kind for cell in now for one in cell for kind in one.get("data", {})}
    assert kinds == {"text/plain", "text/html", "image/png"}
    assert not any("Traceback" in str(cell) for cell in shown)
