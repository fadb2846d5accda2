import pytest

from gpu_consumers.output_lengths import OutputLengths


def test_the_first_answers_count_alike() -> None:
    lengths = OutputLengths()
    assert lengths.mean("a") is None
    for tokens in (10, 20, 60):
        lengths.ended("a", tokens)
    assert lengths.mean("a") == pytest.approx(30)
    assert lengths.mean("b") is None


def test_later_ones_move_the_mean_to_where_they_are() -> None:
    lengths = OutputLengths()
    for _ in range(100):
        lengths.ended("a", 10)
    for _ in range(100):
        lengths.ended("a", 200)
    assert 195 < (lengths.mean("a") or 0) < 200
