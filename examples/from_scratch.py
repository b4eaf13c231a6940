"""Small models that are trained from scratch on a CPU: what the examples in trl/ and agent/ share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM


def tokenizer_of(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each word of the texts, <pad> 0 and <eos> 1."""
    words = {word for text in texts for word in text.split()}
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *sorted(words)])}
    model = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    model.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def random_model(words: PreTrainedTokenizerFast, seed: int) -> Qwen2ForCausalLM:
    """A model with two layers and about 100,000 weights."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def supervise(model: Qwen2ForCausalLM, rows: Sequence[tuple[list[int], list[int]]], steps: int) -> None:
    """Supervised steps on a few texts. rows: the tokens of each, and 1 for those to learn, 0 for the others."""
    longest = max(len(ids) for ids, _ in rows)
    # On the left, as in generation: prompts of different length end together.
    ids = torch.tensor([[0] * (longest - len(row)) + row for row, _ in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row, _ in rows])
    learned = torch.tensor([[0] * (longest - len(row)) + part for row, part in rows])
    labels = ids.masked_fill(learned == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(steps):
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def settings(options: argparse.Namespace, seed: int, **others):
    """TRL's configuration of one run: no KL term, a constant learning rate, the rest TRL's default."""
    from trl import GRPOConfig  # seconds, which the tests of tasks and logs do not need

    return GRPOConfig(
        output_dir=str(options.out / "trainer"),
        seed=seed,
        max_steps=options.steps,
        num_generations=options.group,
        per_device_train_batch_size=options.group * options.prompts,
        learning_rate=options.learning_rate,
        lr_scheduler_type="constant",
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **others,
    )


def options_of(
    about: str, *, steps: int, group: int, prompts: int, learning_rate: float, warm_up_steps: int
) -> argparse.ArgumentParser:
    """The options that every training script has, with its own defaults."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--group", type=int, default=group, help="rollouts a prompt")
    parser.add_argument("--prompts", type=int, default=prompts, help="prompts a step")
    parser.add_argument("--learning-rate", type=float, default=learning_rate)
    parser.add_argument("--warm-up-examples", type=int, default=32)
    parser.add_argument("--warm-up-steps", type=int, default=warm_up_steps)
    return parser
