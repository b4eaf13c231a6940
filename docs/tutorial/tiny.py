"""A model and prompts that are made on the spot, so that a run takes a minute on a CPU, without network."""

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

WORDS = ["<pad>", "<eos>", "say", *"abcdefgh"]


def tokenizer():
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def model():
    """A random Qwen2 of about 5,000 weights."""
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(WORDS),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=1,
        )
    )


def prompts():
    """512 of them, each with a letter to say and two that do not matter."""
    letters = "abcdefgh"
    return Dataset.from_list([{"prompt": f"{x} {y} say {z}"} for x in letters for y in letters for z in letters])
