"""A tokenizer of few words and the configuration of a model, for runs of verl without one."""

WORDS = ["<pad>", "<eos>", "<user>", "<assistant>", *map(str, range(10)), "goal", "high", "low", "add", "<unk>"]
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} {% endfor %}<assistant>"


def write_model(folder, words=WORDS, template=TEMPLATE):
    """Write both into a folder; a word is the token of its place."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=32,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
    ).save_pretrained(folder)
