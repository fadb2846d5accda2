"""A comparison for the terminal, and as JSON. Pure: what it returns is for a rich Console to print."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpu_consumers.comparison.run import Comparison, Measured
from gpu_consumers.profiling.units import size

_OTHER_TOKENS: Final = (
    "The two cut the text into different tokens. A perplexity is by token, so these two don't compare: bits per byte "
    "do. Nor is there a common place at which to hold their tokens against each other, and tokens a second are of "
    "tokens of different length."
)
_SAME: Final = "="


def render(comparison: Comparison, text_name: str, remark: str | None = None) -> RenderableType:
    """One table, and what must be known to read it. remark: what else."""
    a, b = comparison.a, comparison.b
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for label in (a.label, b.label):
        table.add_column(Text(label), justify="right", overflow="fold")
    table.add_column("B to A", justify="right", style="cyan", no_wrap=True)
    _add_quality(table, comparison)
    _add_agreement(table, comparison)
    _add_speed(table, a, b)
    head = Text(f"A {a.label}   B {b.label}\n", style="bold")
    head.append(
        f"{text_name}, {comparison.text_bytes:,} bytes, in windows of up to {comparison.window_tokens:,} tokens\n",
        style="not bold dim",
    )
    told: list[RenderableType] = [head, table]
    if comparison.agreement is None:
        told.append(Text(f"\n{_OTHER_TOKENS}", style="yellow"))
    if remark is not None:
        told.append(Text(f"\n{remark}", style="yellow"))
    return Group(*told)


def _add_section(table: Table, title: str) -> None:
    if table.row_count:
        table.add_row()
    table.add_row(Text(title, style="dim"))


def _add_quality(table: Table, comparison: Comparison) -> None:
    a, b = comparison.a.reading, comparison.b.reading
    alike = comparison.agreement is not None
    _add_section(table, "How well: less is better")
    table.add_row("bits per byte", f"{a.bits_per_byte:.4f}", f"{b.bits_per_byte:.4f}",
                  _change(a.bits_per_byte, b.bits_per_byte))  # fmt: skip
    table.add_row("perplexity", f"{a.perplexity:.3f}", f"{b.perplexity:.3f}",
                  _change(a.perplexity, b.perplexity) if alike else "")  # fmt: skip
    table.add_row("tokens scored", f"{len(a.losses):,}", f"{len(b.losses):,}", "")


def _add_agreement(table: Table, comparison: Comparison) -> None:
    alike = comparison.agreement
    if alike is None:
        return
    _add_section(table, "How much alike")
    table.add_row("same likeliest token", "", "", f"{alike.same_greedy:.1%}")
    of = f"{alike.continuations} answers of {alike.continuation_tokens}"
    table.add_row(f"common beginning of {of}", "", "", f"{alike.common_prefix:.1f}")
    if alike.divergence is not None:
        table.add_row(f"KL(A || B), nats at {alike.places:,} places", "", "", f"{alike.divergence:.2g}")


def _add_speed(table: Table, a: Measured, b: Measured) -> None:
    _add_section(table, "How fast: tokens a second")
    rows = [
        ("decode, 1 sequence", a.speed.decode_one, b.speed.decode_one),
        (f"decode, {a.speed.many} sequences", a.speed.decode_many, b.speed.decode_many),
        ("prefill", a.speed.prefill, b.speed.prefill),
    ]
    for name, of_a, of_b in rows:
        table.add_row(name, f"{of_a:,.0f}", f"{of_b:,.0f}", _times(of_a, of_b))
    _add_section(table, "What it takes")
    table.add_row("weights", size(a.weight_bytes), size(b.weight_bytes), _times(a.weight_bytes, b.weight_bytes))
    table.add_row("KV memory of a token", size(a.kv_bytes_per_token), size(b.kv_bytes_per_token),
                  _times(a.kv_bytes_per_token, b.kv_bytes_per_token))  # fmt: skip
    table.add_row("time to load", f"{a.load_seconds:.1f} s", f"{b.load_seconds:.1f} s", "")


def _change(a: float, b: float) -> str:
    share = b / a - 1
    return _SAME if share == 0 else f"{share:+.2%}"


def _times(a: float, b: float) -> str:
    return _SAME if a == b else f"x {b / a:.2f}"


def as_numbers(comparison: Comparison, text_name: str) -> dict[str, Any]:
    """For JSON."""
    alike = comparison.agreement
    return {
        "text": text_name,
        "text_bytes": comparison.text_bytes,
        "window_tokens": comparison.window_tokens,
        "a": _numbers_of(comparison.a),
        "b": _numbers_of(comparison.b),
        "same_tokens": alike is not None,
        "agreement": None
        if alike is None
        else {
            "same_greedy": alike.same_greedy,
            "common_prefix_tokens": alike.common_prefix,
            "continuation_tokens": alike.continuation_tokens,
            "continuations": alike.continuations,
            "kl_divergence_nats": alike.divergence,
            "kl_places": alike.places,
        },
    }


def _numbers_of(measured: Measured) -> dict[str, Any]:
    reading, speed = measured.reading, measured.speed
    return {
        "model": measured.label,
        "perplexity": reading.perplexity,
        "bits_per_byte": reading.bits_per_byte,
        "tokens_scored": len(reading.losses),
        "decode_tokens_per_second": {"1": speed.decode_one, str(speed.many): speed.decode_many},
        "prefill_tokens_per_second": speed.prefill,
        "weight_bytes": measured.weight_bytes,
        "kv_bytes_per_token": measured.kv_bytes_per_token,
        "load_seconds": measured.load_seconds,
    }
