"""Writes train.parquet and val.parquet next to this file: sums of two numbers, in verl's format."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PROMPT = "What is {} + {}? Think as briefly as you can, then answer in the form <answer>number</answer>."


def row(a: int, b: int, index: int) -> dict:
    return {
        "data_source": "sums",
        "prompt": [{"role": "user", "content": PROMPT.format(a, b)}],
        "reward_model": {"style": "rule", "ground_truth": str(a + b)},
        "extra_info": {"index": index},
    }


def main(folder: Path = Path(__file__).parent) -> None:
    draw = random.Random(0)
    for name, count in {"train": 4096, "val": 128}.items():
        rows = [row(draw.randrange(1000), draw.randrange(1000), i) for i in range(count)]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")


if __name__ == "__main__":
    main()
