"""What a rollout log costs a training, in seconds a step: `make bench`.

8,192 rollouts in groups of 16, each of 1,000 tokens or 4,000 characters, ten columns. Training waits for `log_batch`,
which takes the columns from tensors, and for a thread that is not done when the next batch comes. The thread runs
beside the training, of which the driver process does little; the processor time that it needs is shown too.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from pathlib import Path

import torch

import rewardspec
from rewardspec.adapters.common.rollout_log import Beside, log_batch, writer_of
from rewardspec.logs.rollout_log import RolloutLog

ROLLOUTS, GROUP, CHARACTERS, STEPS = 8192, 16, 4000, 5
COMPONENTS = 10
WORDS = [
    "the",
    "of",
    "and",
    "a",
    "to",
    "in",
    "is",
    "that",
    "it",
    "was",
    "for",
    "on",
    "are",
    "as",
    "with",
    "be",
    "at",
    "one",
    "have",
    "this",
    "from",
    "or",
    "had",
    "by",
    "word",
    "but",
    "what",
]


def texts(seed: int) -> dict[str, list[str]]:
    """Words at random, which zstd makes about a third as long, as it does text."""
    draw = torch.Generator().manual_seed(seed)
    places = torch.randint(len(WORDS) * 40, (ROLLOUTS, CHARACTERS // 5), generator=draw).tolist()
    words = [word + str(n) * (n > 0) for n in range(40) for word in WORDS]
    completions = [" ".join(words[place] for place in row)[:CHARACTERS] for row in places]
    return {"prompt": [f"{i // GROUP} is what?" * 40 for i in range(ROLLOUTS)], "completion": completions}


def run(text: str, given: dict[str, list[str]]) -> None:
    lines = [f"  c{i}: {{range: [0, 1]}}" for i in range(COMPONENTS)]
    spec = rewardspec.loads("\n".join(["rewardspec: 1", "components:", *lines, "advantage: gdpo", ""]))
    fn, columns = rewardspec.compile(spec), {f"c{i}": torch.rand(ROLLOUTS) for i in range(COMPONENTS)}
    groups = [row // GROUP for row in range(ROLLOUTS)]
    with tempfile.TemporaryDirectory() as folder:
        writer = writer_of(RolloutLog(folder, text=text), spec, "benchmark", "torch")
        called, threads, used = [], [], []
        for step in range(STEPS):
            result = fn(columns, GROUP)
            result.metrics()  # as adapters do
            start, processor = time.perf_counter(), time.process_time()
            moment = {"step": step, "total_steps": STEPS, "seed": 0, "before": None}
            log_batch(writer, spec, columns, result, groups, **moment, beside=lambda: Beside(given))
            called.append(time.perf_counter() - start)
            writer.flush()
            threads.append(time.perf_counter() - start - called[-1])
            used.append(time.process_time() - processor)
        size = max(path.stat().st_size for path in Path(folder).iterdir()) / 2**20
    print(
        f"{text:4}: {min(called) * 1e3:6.1f} ms a step in training, {min(threads):5.2f} s in the thread, "
        f"{min(used):5.2f} s of a processor for both, {size:5.1f} MiB a file"
    )


def decode(given: dict[str, list[str]]) -> None:
    """In verl and OpenRLHF the thread decodes the tokens, too: here those of a BPE that learnt on such texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    made.train_from_iterator(given["completion"][:64], trainers.BpeTrainer(vocab_size=2000, show_progress=False))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made)
    rows = [torch.tensor(row) for row in tokenizer(given["completion"], return_attention_mask=False)["input_ids"]]
    start, processor = time.perf_counter(), time.process_time()
    tokenizer.batch_decode([row.tolist() for row in rows], skip_special_tokens=True)
    took, used = time.perf_counter() - start, time.process_time() - processor
    tokens = sum(map(len, rows)) / len(rows)
    print(f"decoding {tokens:.0f} tokens a rollout: {took:.2f} s in the thread, {used:.2f} s of a processor")


def main() -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
    given = texts(0)
    size = sum(len(text) for values in given.values() for text in values) / 2**20
    print(f"{ROLLOUTS:,} rollouts, {size:.0f} MiB of text, {COMPONENTS} components; least of {STEPS} steps")
    for text in ("full", "hash", "none"):
        run(text, given)
    decode(given)


if __name__ == "__main__":
    main()
