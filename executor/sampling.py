"""The next token of every row of logits: the likeliest, or drawn at a temperature."""

from __future__ import annotations

import torch
from torch import Tensor


class Sampler:
    """Greedy at temperature 0; draws are seeded, so that equal plans give equal tokens."""

    def __init__(self, temperature: float, seed: int, device: torch.device, *, logprobs: bool = False) -> None:
        self._temperature = temperature
        self._generator = torch.Generator(device).manual_seed(seed)
        self._logprobs = logprobs

    def __call__(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Token ids [N] of logits [N, vocabulary], and where asked for their log-probabilities, untempered."""
        if self._temperature:
            weights = torch.softmax(logits / self._temperature, -1)
            tokens = torch.multinomial(weights, 1, generator=self._generator)[:, 0]
        else:
            tokens = logits.argmax(-1)
        if not self._logprobs:
            return tokens, None
        return tokens, torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0]
