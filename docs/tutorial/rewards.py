"""The two rewards: the letter that the prompt asks for, and short answers."""


def correct(prompts, completions, **_):
    """1 if the answer ends with the letter that the prompt asks for."""
    pairs = zip(prompts, completions, strict=True)
    return [float(completion.split()[-1:] == [prompt.split()[-1]]) for prompt, completion in pairs]


def brief(completions, **_):
    """1 for an answer of at most four letters."""
    return [float(len(completion.split()) <= 4) for completion in completions]
