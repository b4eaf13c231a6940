"""Tests in an environment that has OpenRLHF 0.11.2; elsewhere there is nothing to collect here."""

import os
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent

try:
    version("openrlhf")
except PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]
else:
    sys.path.insert(0, str(HERE / "stubs"))  # flash_attn and vllm
    # for Ray's workers
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent.parent), str(HERE), str(HERE / "stubs")])
    os.environ["HF_HUB_OFFLINE"] = "1"
    with warnings.catch_warnings(action="ignore"):  # where it is not compiled yet, its sources give warnings
        import openrlhf.trainer.ppo_trainer  # noqa: F401
