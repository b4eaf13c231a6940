"""Two rewards of the example: what is asked for is in the prompt, and short answers are better."""


def correct(prompts, completions, **_):
    """1 where the completion has the letter that the prompt asks for."""
    return [float(prompt[-1] in completion) for prompt, completion in zip(prompts, completions, strict=True)]


def brief(completions, **_):
    """From 0 for eight characters or more to 1 for none."""
    return [max(0.0, 1 - len(completion) / 8) for completion in completions]
