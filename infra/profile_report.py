"""A profile for the terminal, and as JSON. Pure: what it returns is for a rich Console to print."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpu_consumers.profiling.picture import headline, load_line
from gpu_consumers.profiling.run import Profile
from gpu_consumers.profiling.units import milliseconds
from gpu_consumers.profiling.verdict import Bound

_PART_COLOURS = {
    "wait": "bright_black", "schedule": "magenta", "build": "magenta", "forward": "green", "sample": "cyan",
    "write": "yellow",
}  # fmt: skip
_BOUND_COLOURS = {
    Bound.INPUT: "bright_black", Bound.SCHEDULER: "magenta", Bound.SAMPLING: "cyan", Bound.MEMORY: "blue",
    Bound.COMPUTE: "green", Bound.OVERHEAD: "red", Bound.ENGINE: "yellow",
}  # fmt: skip
_ABOUT = {
    "wait": "for requests",
    "schedule": "what runs next, and what it brought",
    "build": "the plan as tensors, the engine's books",
    "forward": "from tokens to logits",
    "sample": "from logits to tokens",
    "write": "text and events",
}
_FULL, _EMPTY = "━", "╌"
_COLUMNS_BESIDE_BARS = 32
_ABOUT_COLUMNS = 44
_WIDE = 100  # columns from which there is room to say what each part is


def render(profile: Profile, width: int) -> RenderableType:
    """Verdict, where the time goes, why, what to change, operators; at most `width` columns."""
    verdict = profile.found.verdict
    head = Text(verdict.title[0].upper() + verdict.title[1:], style=f"bold {_BOUND_COLOURS[verdict.bound]}")
    head.append(f"\n{headline(profile)}", style="default not bold")
    head.append(f"\n{load_line(profile)}", style="not bold dim default")
    is_wide = width >= _WIDE
    cells = max(10, min(48, width - _COLUMNS_BESIDE_BARS - (_ABOUT_COLUMNS if is_wide else 0)))
    parts: list[RenderableType] = [head, Text(), _parts(profile, cells, told=is_wide), Text()]
    parts += [Text(reason) for reason in profile.reasons]
    parts += [Text(), Text("What to change", style="bold"), _advice(profile)]
    if profile.found.operators:
        parts += [Text(), Text("Operators, by the torch profiler", style="bold"), _operators(profile)]
    return Group(*parts)


def _parts(profile: Profile, cells: int, *, told: bool) -> Table:
    summary = profile.found.summary
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim", padding=(0, 1))
    table.add_column("part", no_wrap=True)
    table.add_column("a turn", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=cells)
    table.add_column("", style="dim", no_wrap=True)
    for part, colour in _PART_COLOURS.items():
        share = summary.parts[part] / summary.seconds
        table.add_row(
            Text(part, style=colour),
            milliseconds(summary.parts[part] / summary.steps),
            f"{share:.1%}",
            _bar(share, cells, colour),
            _ABOUT[part] if told else "",
        )
    table.add_row(Text("turn", style="bold"), milliseconds(summary.seconds / summary.steps), "", "", "")
    return table


def _bar(share: float, cells: int, colour: str) -> Text:
    filled = round(share * cells)
    if share > 0:
        filled = max(1, filled)
    return Text(_FULL * filled, style=colour).append(_EMPTY * (cells - filled), style="bright_black")


def _advice(profile: Profile) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column(style="bold green", overflow="fold", max_width=34)
    table.add_column(overflow="fold")
    for advice in profile.advice:
        table.add_row(Text(advice.do), Text(advice.why))
    return table


def _operators(profile: Profile) -> Table:
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim", padding=(0, 1))
    table.add_column("operator", overflow="ellipsis", no_wrap=True, max_width=60)
    table.add_column("own time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("calls", justify="right")
    for operator in profile.found.operators:
        table.add_row(
            Text(operator.name), milliseconds(operator.seconds), f"{operator.share:.1%}", f"{operator.calls:,}"
        )
    return table


def as_numbers(profile: Profile) -> dict[str, Any]:
    """For JSON. Seconds, bytes and FLOP are of the whole window unless a name says otherwise."""
    found = profile.found
    setup, load, summary, verdict, reference = found.setup, found.load, found.summary, found.verdict, found.reference
    return {
        "model": profile.model,
        "engine": setup.engine,
        "dtype": setup.dtype,
        "quantization": "int8" if setup.quantized else "none",
        "slots": setup.slots,
        "load": {
            "concurrency": load.concurrency if load.rate is None else None,
            "rate": load.rate,
            "prompt_tokens": load.prompt_tokens,
            "output_tokens": load.output_tokens,
            "temperature": load.temperature,
        },
        "seconds": summary.seconds,
        "steps": summary.steps,
        "finished_requests": profile.finished_requests,
        "output_tokens_per_second": summary.output_tokens_per_second,
        "prompt_tokens_per_second": summary.prompt_tokens_per_second,
        "mean_slots": summary.mean_slots,
        "mean_waiting": summary.mean_waiting,
        "parts_seconds": dict(summary.parts),
        "bytes": summary.bytes,
        "kv_bytes": summary.kv_bytes,
        "flop": summary.flops,
        "reference": None
        if reference is None
        else {
            "device": reference.device,
            "bytes_per_second": reference.bytes_per_second,
            "flop_per_second": reference.flops,
        },
        "verdict": {
            "bound": verdict.bound.value,
            "near": None if verdict.near is None else verdict.near.value,
            "title": verdict.title,
            "shares": {bound.value: share for bound, share in verdict.shares.items()},
            "memory_floor_seconds": verdict.memory_seconds,
            "compute_floor_seconds": verdict.compute_seconds,
            "floor_share_of_forward": verdict.floor,
            "reasons": list(profile.reasons),
        },
        "advice": [{"do": advice.do, "why": advice.why} for advice in profile.advice],
        "operators": [
            {"name": o.name, "seconds": o.seconds, "share": o.share, "calls": o.calls} for o in profile.found.operators
        ],
        "points": [
            {"label": p.label, "flop_per_byte": p.intensity, "flop_per_second": p.flops, "forward_seconds": p.seconds}
            for p in profile.points
        ],
    }
