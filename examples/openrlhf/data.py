"""Writes train.jsonl next to this file: sums of two numbers, with the answer as the label."""

import json
import random
from pathlib import Path

PROMPT = "What is {} + {}? Think as briefly as you can, then answer in the form <answer>number</answer>."


def main(folder: Path = Path(__file__).parent) -> None:
    draw = random.Random(0)
    with open(folder / "train.jsonl", "w") as file:
        for _ in range(4096):
            a, b = draw.randrange(1000), draw.randrange(1000)
            file.write(json.dumps({"input": PROMPT.format(a, b), "label": str(a + b)}) + "\n")


if __name__ == "__main__":
    main()
