from __future__ import annotations

import pytest

from gpu_consumers.profiling.units import milliseconds, operations, scaled, size


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (milliseconds(1.5), "1,500.0 ms"),
        (milliseconds(0.0123), "12.3 ms"),
        (milliseconds(0.0000421), "42 µs"),
        (size(999), "999 B"),
        (size(999.9), "1 kB"),
        (size(2.7e8), "270 MB"),
        (operations(1.234e12), "1.23 TFLOP"),
        (operations(5e18), "5e+03 PFLOP"),
        (scaled(10.0, ""), "10 "),
    ],
)
def test_numbers_are_for_people(said: str, expected: str) -> None:
    assert said == expected
