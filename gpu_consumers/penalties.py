"""What a request adds to and takes off logits before a token is drawn: logit bias, then penalties on what it has said.

Both touch a few hundred or thousand tokens of a vocabulary of up to 256k: what is kept for a sequence is the list of
its distinct tokens, and what is computed in a step is as long as these lists together.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from gpu_consumers.plan import SamplingParams


class TokenCounts:
    """The distinct tokens of one sequence, and how often each stands in its output: a function of the tokens given."""

    __slots__ = ("_counts", "_ids", "_of_prompt", "_places")

    def __init__(self, *, of_prompt: bool = True) -> None:
        """of_prompt: tokens of the prompt matter too."""
        self._of_prompt = of_prompt
        self._ids = array("q")
        self._counts = array("q")
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, token_ids: Iterable[int], *, output: bool) -> None:
        """output: they stand in the output; otherwise in the prompt."""
        if not (output or self._of_prompt):
            return
        for token_id in token_ids:
            place = self._places.get(token_id)
            if place is None:
                place = self._places[token_id] = len(self._ids)
                self._ids.append(token_id)
                self._counts.append(0)
            if output:
                self._counts[place] += 1

    @property
    def ids(self) -> Tensor:
        """[distinct tokens], in order of appearance; a view that must be gone before the next token is added."""
        return torch.frombuffer(self._ids, dtype=torch.long)

    @property
    def counts(self) -> Tensor:
        """[distinct tokens], how often each stands in the output; a view likewise."""
        return torch.frombuffer(self._counts, dtype=torch.long)


def counts_for(sampling: SamplingParams) -> TokenCounts | None:
    """What has to be counted for its penalties; None if they do nothing."""
    repetition = sampling.repetition_penalty != 1.0
    if repetition or sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0:
        return TokenCounts(of_prompt=repetition)
    return None


def penalize(
    logits: Tensor, rows: Sequence[int], counted: Sequence[TokenCounts], sampling: Sequence[SamplingParams]
) -> None:
    """In place, these rows of `logits` [any, vocabulary], float32, each for one sequence.

    Repetition first, as in transformers' RepetitionPenaltyLogitsProcessor: a logit of a token of prompt or output is
    divided by the penalty if it is positive and multiplied if not. Then, as in OpenAI's API and in vLLM, for tokens of
    the output: less frequency_penalty for each time that it stands there, less presence_penalty once.
    """
    lengths = torch.tensor([len(counts) for counts in counted])
    if not int(lengths.sum()):
        return
    device = logits.device

    def of_each(values: list[float]) -> Tensor:
        return torch.tensor(values).repeat_interleave(lengths).to(device)

    present = [counts for counts in counted if len(counts)]  # torch makes no tensor of an empty buffer
    ids = torch.cat([counts.ids for counts in present]).to(device)
    times = torch.cat([counts.counts for counts in present]).to(device, logits.dtype)
    places = torch.tensor(rows).repeat_interleave(lengths).to(device)
    repetition = of_each([params.repetition_penalty for params in sampling])
    values = logits[places, ids]
    values = torch.where(values < 0, values * repetition, values / repetition)
    values -= of_each([params.frequency_penalty for params in sampling]) * times
    values -= of_each([params.presence_penalty for params in sampling]) * (times > 0)
    logits[places, ids] = values


class LogitBias:
    """What is added to the logits of one sequence. Of a token that is named twice, both."""

    __slots__ = ("_biases", "_ids")

    def __init__(self, biases: Iterable[tuple[int, float]], device: torch.device) -> None:
        biases = tuple(biases)
        self._ids = torch.tensor([token_id for token_id, _ in biases], dtype=torch.long, device=device)
        self._biases = torch.tensor([bias for _, bias in biases], dtype=torch.float32, device=device)

    def add_to(self, row: Tensor) -> None:
        """In place; `row` [vocabulary], float32."""
        row.index_add_(0, self._ids, self._biases)
