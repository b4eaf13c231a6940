"""Creates a folder for run.yaml, with a tiny random model, prompts, the rewards and the configuration.

    python examples/trl/prepare.py run && cd run && trl grpo --config run.yaml

Takes a few seconds on a CPU, without network.
"""

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))

from tiny_model import save_tiny_model  # noqa: E402


def main(folder: Path) -> None:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    save_tiny_model(folder / "model")
    prompts = [{"prompt": f"give {letter}"} for letter in "abcdefgh" * 4]
    (folder / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts))
    for name in ("rewards.py", "run.yaml"):
        shutil.copy(HERE / name, folder)
    print(f"cd {folder} && trl grpo --config run.yaml")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
