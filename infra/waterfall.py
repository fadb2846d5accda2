"""A trace as a picture for the terminal. Pure: what it returns is for a rich Console to print."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from infra.trace import Decision, Stage, Trace, count

_COLOURS = {
    "ingress": "cyan", "deliver": "cyan",  # the edge
    "validate": "magenta", "quota": "magenta", "route": "magenta",  # decisions
    "queue": "yellow", "schedule": "yellow",  # waiting
    "prefill": "green", "decode": "bright_green",  # the GPU consumer
}  # fmt: skip
_STATUS_COLOURS = {"completed": "green", "incomplete": "yellow", "running": "cyan", "cancelled": "yellow"}
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_COLUMNS_BESIDE_BARS = 20  # and those of the milliseconds
_MS_COLUMNS = 9
_WHOLE = "█"


def render(trace: Trace, width: int, title: str) -> RenderableType:
    """Head, waterfall, sum, decisions; at most `width` columns. title: the id that the reader knows."""
    parts: list[RenderableType] = [_head(trace, width, title), Text()]
    if trace.stages:
        ms_columns = max(_MS_COLUMNS, *(len(_ms(stage.ms)) for stage in trace.stages))
        cells = max(12, min(100, width - _COLUMNS_BESIDE_BARS - ms_columns))
        parts += [_stages(trace, ms_columns, cells), _sum(trace, ms_columns), Text()]
    parts.append(_decisions(trace.decisions))
    return Group(*parts)


def _ms(value: float) -> str:
    return f"{value:,.3f}"


def _joined(parts: Iterable[str], width: int) -> str:
    """The parts with dots between them; a line that would be too long ends behind a part, not within one."""
    line, *others = parts
    lines = [line]
    for part in others:
        longer = f"{lines[-1]} · {part}"
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return "\n".join(lines)


def _head(trace: Trace, width: int, title: str) -> Text:
    text = Text()
    text.append(title, style="bold")
    text.append(f"  {trace.status}", style=f"bold {_STATUS_COLOURS.get(trace.status, 'red')}")
    if trace.reason:
        text.append(f" ({trace.reason})")
    text.append("\n")
    route = " → ".join(part for part in (trace.model, trace.model_version, trace.worker) if part)
    facts = (f"tenant {trace.tenant}", route, f"received {trace.received_at[:19]} UTC")
    text.append(_joined(filter(None, facts), width))
    numbers = [f"{count(trace.prompt_tokens, 'prompt token')}, {count(trace.output_tokens, 'output token')}"]
    if trace.ttft_ms is not None:
        numbers.append(f"first token after {trace.ttft_ms:,.1f} ms")
    if trace.tokens_per_second is not None:
        numbers.append(f"then {trace.tokens_per_second:,.1f} tokens/s")
    if trace.attempts > 1:
        numbers.append(f"{trace.attempts} attempts")
    if trace.prompt_tokens:
        text.append("\n" + _joined(numbers, width), style="dim")
    return text


def _stages(trace: Trace, ms_columns: int, cells: int) -> Table:
    whole_ms = trace.total_ms or trace.stages_ms
    end = f"{whole_ms:,.1f} ms"
    axis = Text("0 ms" + end.rjust(cells - 4), style="dim")
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim", padding=(0, 1))
    table.add_column("stage", min_width=8)
    table.add_column("ms", justify="right", min_width=ms_columns)
    table.add_column("share", justify="right", min_width=6)
    table.add_column(axis, no_wrap=True, min_width=cells)
    for stage in trace.stages:
        colour = _COLOURS[stage.name]
        share = stage.ms / whole_ms if whole_ms > 0 else 0.0
        table.add_row(
            Text(stage.name, style=colour), _ms(stage.ms), f"{share:.1%}",
            Text(bar(stage, whole_ms, cells), style=colour),
        )  # fmt: skip
    return table


def bar(stage: Stage, whole_ms: float, cells: int) -> str:
    """The stage's place on the request's time axis, to an eighth of a cell; never nothing."""
    if whole_ms <= 0:
        return _EIGHTHS[1]
    first = min(cells - 1, max(0, int(stage.start_ms / whole_ms * cells)))
    eighths = max(1, min(round(stage.ms / whole_ms * cells * 8), (cells - first) * 8))
    whole, rest = divmod(eighths, 8)
    return " " * first + _WHOLE * whole + (_EIGHTHS[rest] if rest else "")


def _sum(trace: Trace, ms_columns: int) -> Text:
    text = Text()
    if trace.total_ms is None:
        text.append(f"{'so far':8} {_ms(trace.stages_ms):>{ms_columns + 1}}", style="bold")
        text.append("   the request is still running", style="dim")
        return text
    text.append(f"{'total':8} {_ms(trace.total_ms):>{ms_columns + 1}}", style="bold")
    difference = abs(trace.total_ms - trace.stages_ms)
    text.append(f"   the stages add up to {trace.stages_ms:,.3f} ms, {difference:.3f} ms off", style="dim")
    if not trace.is_delivered:
        text.append("; not delivered yet", style="dim")
    return text


def _decisions(decisions: tuple[Decision, ...]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for decision in decisions:
        table.add_row(f"{decision.at_ms:+,.1f} ms", decision.what, decision.why)
    return table
