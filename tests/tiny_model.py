"""A model and a tokenizer made on the spot, small enough to train some steps on a CPU within a second."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as Bytes
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SPECIAL = ["<pad>", "<eos>", "<unk>", "<|high_reward|>", "<|low_reward|>"]
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyzGR[]:|_<>ĠĊ"  # the last two are space and line break, in bytes
VOCABULARY = {token: i for i, token in enumerate([*SPECIAL, *CHARACTERS])}
CHAT = (
    "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character; what is not in `CHARACTERS` is <unk>."""
    tokenizer = Tokenizer(BPE(VOCABULARY, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = Bytes()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=["<|high_reward|>", "<|low_reward|>"],
        padding_side="left",
        chat_template=CHAT,
    )


def tiny_model(seed: int = 0) -> Qwen2ForCausalLM:
    """A random Qwen2, the same for the same seed, of about 5,000 weights."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def save_tiny_model(folder: Path) -> Path:
    """The folder, with model and tokenizer in it, for what loads by path."""
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
