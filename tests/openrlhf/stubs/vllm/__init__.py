"""What OpenRLHF uses of vLLM. The engine "writes" tokens that follow from the prompt and the number of the request."""

from dataclasses import dataclass, field
from types import SimpleNamespace

__version__ = "0.29.0"

EOS, FIRST, LAST = 1, 3, 12  # tokens of the tests' tokenizer: digits stand from FIRST to LAST


@dataclass
class SamplingParams:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int | None = None
    min_tokens: int = 1
    skip_special_tokens: bool = False
    logprobs: int | None = None


class AsyncEngineArgs(SimpleNamespace):
    pass


@dataclass
class AsyncLLMEngine:
    written: dict = field(default_factory=dict)  # how often for each prompt

    @classmethod
    def from_engine_args(cls, args):
        return cls()

    @property
    def output_processor(self):
        return SimpleNamespace(get_num_unfinished_requests=lambda: 0)

    async def is_sleeping(self):
        return False

    async def sleep(self, level=1):
        pass

    async def wake_up(self, tags=None):
        pass

    async def generate(self, prompt, params, request_id):
        tokens = tuple(prompt["prompt_token_ids"])
        turn = self.written[tokens] = self.written.get(tokens, -1) + 1
        digits = [FIRST + (sum(tokens) + turn * (k + 1)) % (LAST - FIRST + 1) for k in range(1 + turn % 4)]
        if len(digits) < params.max_tokens:
            written, reason = [*digits, EOS], "stop"
        else:
            written, reason = digits[: params.max_tokens], "length"
        yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=written, finish_reason=reason, logprobs=None)])
