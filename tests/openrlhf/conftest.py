"""Tests in an environment that has OpenRLHF 0.11.2; elsewhere there is nothing to collect here."""

import os
import sys
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
