from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from gpu_consumers.comparison.agreement import Agreement
from gpu_consumers.comparison.reading import Reading
from gpu_consumers.comparison.run import Comparison, Measured
from gpu_consumers.comparison.speed import Speed
from infra.comparison_report import as_numbers, render

READING = Reading(losses=(0.0, 2.0), likeliest=(1, 2), distributions=(), continuations=(), predicted_bytes=8)
A = Measured("chat:bfloat16", READING, Speed(50.0, 400.0, 16, 1000.0), 1.5, 2_000_000, 1000)
B = Measured("[odd]:int8", replace(READING, losses=(1.0, 2.0)), Speed(100.0, 400.0, 16, 900.0), 0.5, 1_000_000, 1000)
ALIKE = Agreement(0.9712, 14.6, 32, 8, 0.0007, 1516)
COMPARISON = Comparison(A, B, ALIKE, 9, 1024)


def shown(comparison: Comparison, remark: str | None = None) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(render(comparison, "stories.txt", remark))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def cells(comparison: Comparison, row: str) -> list[str]:
    [line] = [line for line in shown(comparison).splitlines() if line.startswith(f"{row}  ")]
    return line.removeprefix(row).split()


def test_two_columns_and_what_b_is_to_a() -> None:
    assert cells(COMPARISON, "perplexity") == ["2.718", "4.482", "+64.87%"]
    assert cells(COMPARISON, "bits per byte") == ["0.3607", "0.5410", "+50.00%"]
    assert cells(COMPARISON, "decode, 1 sequence") == ["50", "100", "x", "2.00"]
    assert cells(COMPARISON, "decode, 16 sequences") == ["400", "400", "="]
    assert cells(COMPARISON, "same likeliest token") == ["97.1%"]
    assert cells(COMPARISON, "KL(A || B), nats at 1,516 places") == ["0.0007"]
    assert "A chat:bfloat16   B [odd]:int8" in shown(COMPARISON)
    assert "stories.txt, 9 bytes" in shown(COMPARISON)


def test_with_other_tokens_perplexities_are_not_compared_and_that_is_said() -> None:
    other = replace(COMPARISON, agreement=None)
    assert cells(other, "perplexity") == ["2.718", "4.482"]
    assert cells(other, "bits per byte") == ["0.3607", "0.5410", "+50.00%"]
    said = shown(other)
    assert "The two cut the text into different tokens." in said
    assert "How much alike" not in said
    assert as_numbers(other, "stories.txt")["agreement"] is None


def test_vocabularies_of_different_size_leave_the_divergence_out() -> None:
    unknown = replace(COMPARISON, agreement=replace(ALIKE, divergence=None, places=0))
    assert "KL" not in shown(unknown)
    assert as_numbers(unknown, "stories.txt")["agreement"]["kl_divergence_nats"] is None


def test_a_remark_stands_below() -> None:
    assert shown(COMPARISON, "The machine was busy.").rstrip().endswith("The machine was busy.")
