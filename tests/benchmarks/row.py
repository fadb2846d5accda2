"""One line of `make bench`: what we reached, what the baseline reached in the same run, and the bar."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchRow:
    """`ours` and `baseline` in `unit`; `bar` is the ratio of the two that we mean to hold.

    higher_is_better: the ratio must reach the bar; otherwise (times, sizes) it must not pass it.
    """

    name: str
    ours: float
    baseline: float
    unit: str
    bar: float
    higher_is_better: bool = True

    @property
    def ratio(self) -> float:
        """ours / baseline; NaN where the baseline is nothing."""
        return self.ours / self.baseline if self.baseline else float("nan")

    @property
    def met(self) -> bool:
        return self.ratio >= self.bar if self.higher_is_better else self.ratio <= self.bar
