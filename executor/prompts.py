"""What requests say: token ids seeded by request or block hash, or real text; placeholders where the items stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from executor.models import LoadedModel
from executor.positions import Positions, prompt_positions
from workloads.content import Run, public_runs
from workloads.errors import InputError
from workloads.request import Request

TOKENS, SHARED_TOKENS = 11, 12  # set these random streams apart from the workload's own
TokenIds = NDArray[np.int64]


class Sequence:
    """Tokens and positions of one request: the prompt's, and the answer's as they come."""

    def __init__(self, ids: TokenIds, positions: Positions, delta: int, output_tokens: int) -> None:
        self.num_prompt = self.num_tokens = len(ids)
        self.ids = np.concatenate([ids, np.zeros(output_tokens, np.int64)])
        answer = np.arange(self.num_prompt, self.num_prompt + output_tokens) + delta
        self.positions = np.concatenate([positions, np.broadcast_to(answer, (3, output_tokens))], axis=1)
        self.logprobs: list[float] = []

    def append(self, token: int) -> None:
        self.ids[self.num_tokens] = token
        self.num_tokens += 1

    @property
    def answer(self) -> list[int]:
        tokens: list[int] = self.ids[self.num_prompt : self.num_tokens].tolist()
        return tokens


class Prompts:
    """Makes each request's tokens: equal seeds give equal tokens."""

    def __init__(self, loaded: LoadedModel, seed: int, text: Path | None = None) -> None:
        """`text` is a file whose words the prompts are made of, which takes a real model's tokenizer.

        Raises InputError where there is no tokenizer, or no such file, or nothing in it.
        """
        self._loaded = loaded
        self._seed = seed
        self._text = None if text is None else _tokens_of(text, loaded)

    def sequence(self, request: Request) -> Sequence:
        config = self._loaded.config
        ids = self._words(request)
        for run in public_runs(request):
            if run.source[0] == "text":
                ids[run.start : run.end] = self._shared_words(run)
        done = 0
        for item in request.items:
            first, last = item.offset, item.offset + item.embeds
            ids[first:last] = config.video_token_id if item.modality == "video" else config.image_token_id
            if first > done:
                ids[first - 1] = config.vision_start_token_id
            if last < len(ids):
                ids[last] = config.vision_end_token_id
            done = last
        positions, delta = prompt_positions(request, config.vision_config.spatial_merge_size)
        return Sequence(ids, positions, delta, request.output_tokens)

    def _words(self, request: Request) -> TokenIds:
        return self._drawn(request.prompt_tokens, TOKENS, request.id)

    def _shared_words(self, run: Run) -> TokenIds:
        """Of a block hash: the same tokens wherever it stands, and however many of them there are."""
        _, size, number = run.source
        assert isinstance(size, int) and isinstance(number, int)
        return self._drawn(run.offset + run.end - run.start, SHARED_TOKENS, size, number)[run.offset :]

    def _drawn(self, count: int, *name: int) -> TokenIds:
        """`count` tokens by name: more of one name begin with those that fewer are."""
        rng = np.random.default_rng([self._seed, *name])
        if self._text is None:
            return rng.integers(*self._loaded.ordinary_tokens, count)
        start = int(rng.integers(len(self._text)))
        return np.take(self._text, np.arange(start, start + count), mode="wrap")


def _tokens_of(path: Path, loaded: LoadedModel) -> TokenIds:
    if loaded.tokenizer is None:
        raise InputError(f"text: {loaded.name} has no tokenizer; real text takes a folder with a real model")
    try:
        words = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"text: {path}: {error}") from None
    ids = np.array(loaded.tokenizer(words, add_special_tokens=False)["input_ids"], np.int64)
    if not len(ids):
        raise InputError(f"text: {path}: nothing in it")
    return ids
