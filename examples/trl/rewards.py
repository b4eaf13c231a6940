"""Two rewards of the example: the letter that the prompt asks for, and short answers."""


def correct(prompts, completions, **_):
    """1 if the completion has the letter that the prompt asks for."""
    return [float(prompt[-1] in completion) for prompt, completion in zip(prompts, completions, strict=True)]


def brief(completions, **_):
    """From 0 for eight characters or more to 1 for none."""
    return [max(0.0, 1 - len(completion) / 8) for completion in completions]
