"""A profile as a picture (SVG): where a step's time goes, what would shorten it, and how near it is to the roof."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

from gpu_consumers.profiling.reference import Reference
from gpu_consumers.profiling.roofline import Point, roof
from gpu_consumers.profiling.run import Profile
from gpu_consumers.profiling.units import milliseconds, operations, scaled, size
from gpu_consumers.profiling.verdict import Bound

PART_COLOURS: Final = {
    "wait": "#9ca3af", "schedule": "#7e22ce", "build": "#a21caf", "forward": "#15803d", "sample": "#0e7490",
    "write": "#b45309",
}  # fmt: skip
BOUND_COLOURS: Final[Mapping[Bound, str]] = {
    Bound.INPUT: "#9ca3af", Bound.SCHEDULER: "#7e22ce", Bound.SAMPLING: "#0e7490", Bound.MEMORY: "#1d4ed8",
    Bound.COMPUTE: "#15803d", Bound.OVERHEAD: "#b91c1c", Bound.ENGINE: "#b45309",
}  # fmt: skip
_INK, _GREY, _LINE = "#1f2937", "#6b7280", "#d1d5db"
_WIDTH, _LEFT, _RIGHT = 1040, 40, 1000
_PLOT_TOP, _PLOT_HEIGHT, _PLOT_LEFT, _PLOT_RIGHT = 330, 300, 96, 590
_TEXT_LEFT, _TEXT_CHARS, _TEXT_LINE = 640, 56, 17
_CHAR_PX: Final = 7.0  # of the widest usual font


def svg(profile: Profile) -> str:
    """Self-contained, on white, 1040 pixels wide."""
    column, end = _column(profile)
    height = max(_PLOT_TOP + _PLOT_HEIGHT + 70, end + 20)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>Profile of {escape(profile.model)}: {profile.found.verdict.title}</title>",
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        *_head(profile),
        *_bars(profile),
        *_roofline(profile),
        *column,
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _head(profile: Profile) -> list[str]:
    found = profile.found
    title = found.verdict.title
    return [
        _text(_LEFT, 42, title[0].upper() + title[1:], size=22, weight=700, colour=BOUND_COLOURS[found.verdict.bound]),
        _text(_RIGHT, 34, headline(profile), anchor="end"),
        _text(_RIGHT, 52, load_line(profile), anchor="end", colour=_GREY),
    ]


def headline(profile: Profile) -> str:
    """What ran where."""
    setup, reference = profile.found.setup, profile.found.reference
    where = f", {reference.device}" if reference else ""
    numbers = f"{setup.dtype}, int8 weights" if setup.quantized else setup.dtype
    return f"{profile.model} on the {setup.engine} engine, {numbers}{where}, {setup.slots} slots"


def load_line(profile: Profile) -> str:
    load, summary = profile.found.load, profile.found.summary
    how = f"{load.concurrency} requests at a time" if load.rate is None else f"{load.rate:g} requests/s"
    return (
        f"{how}, {load.prompt_tokens} prompt and {load.output_tokens} output tokens: "
        f"{summary.output_tokens_per_second:,.1f} output tokens/s over {summary.seconds:.1f} s"
    )


def _bars(profile: Profile) -> list[str]:
    summary, verdict = profile.found.summary, profile.found.verdict
    turn = summary.seconds / summary.steps
    return [
        _text(_LEFT, 92, f"One turn of the loop in the mean: {milliseconds(turn)}, by part", weight=600),
        *_stacked(104, [(part, summary.parts[part] / summary.seconds, PART_COLOURS[part]) for part in PART_COLOURS]),
        _text(_LEFT, 186, "The same time by what would shorten it", weight=600),
        *_stacked(198, [(bound.value, verdict.shares[bound], BOUND_COLOURS[bound]) for bound in BOUND_COLOURS]),
    ]


def _stacked(y: int, shares: Sequence[tuple[str, float, str]]) -> list[str]:
    """A bar of all the time, and a legend of the parts that fill at least half a percent of it."""
    parts, x, legend_x = [], float(_LEFT), float(_LEFT)
    for name, share, colour in shares:
        if share <= 0:
            continue
        width = (_RIGHT - _LEFT) * share
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="26" fill="{colour}"/>')
        if width > _CHAR_PX * (len(name) + 7):
            parts.append(_text(x + width / 2, y + 17, f"{name} {share:.0%}", colour="#ffffff", anchor="middle"))
        x += width
        if share >= 0.005:
            said = f"{name} {share:.1%}"
            parts.append(f'<rect x="{legend_x:.1f}" y="{y + 36}" width="10" height="10" rx="2" fill="{colour}"/>')
            parts.append(_text(legend_x + 15, y + 45, said, colour=_GREY))
            legend_x += 15 + _CHAR_PX * len(said) + 18
    return parts


class _Scale:
    """A logarithmic axis: values in [low, high], both powers of ten, to pixels."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low = floor(log10(min(values)) - 0.3)
        self.high = ceil(log10(max(values)) + 0.3)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        return self._start + (self._end - self._start) * (log10(value) - self.low) / (self.high - self.low)

    @property
    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def _roofline(profile: Profile) -> list[str]:
    reference, points = profile.found.reference, profile.points
    top, bottom = _PLOT_TOP, _PLOT_TOP + _PLOT_HEIGHT
    parts = [_text(_LEFT, top - 42, "How near the forward passes are to what this machine can do", weight=600)]
    if reference is None or not points:
        said = "What this engine's steps read and compute is not known, so there is no roof to hold them against."
        return [*parts, _text(_LEFT, top - 18, said, colour=_GREY)]
    x = _Scale([*(point.intensity for point in points), reference.ridge], _PLOT_LEFT, _PLOT_RIGHT)
    y = _Scale([*(point.flops for point in points), reference.flops], bottom, top)
    parts += _axes(x, y, top, bottom)
    parts += _roof_lines(reference, x, y)
    label_y = 0.0
    for point in sorted(points, key=lambda point: -point.flops):
        label_y = max(y.at(point.flops) + 21, label_y + 16)
        parts += _point(point, reference, x, y, label_y)
    return parts


def _axes(x: _Scale, y: _Scale, top: int, bottom: int) -> list[str]:
    parts = []
    for value in x.decades:
        at = x.at(value)
        parts.append(f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{bottom}" stroke="{_LINE}"/>')
        parts.append(_text(at, bottom + 18, f"{value:g}", colour=_GREY, anchor="middle"))
    for value in y.decades:
        at = y.at(value)
        parts.append(f'<line x1="{_PLOT_LEFT}" y1="{at:.1f}" x2="{_PLOT_RIGHT}" y2="{at:.1f}" stroke="{_LINE}"/>')
        parts.append(_text(_PLOT_LEFT - 8, at + 4, scaled(value, ""), colour=_GREY, anchor="end"))
    middle = (_PLOT_LEFT + _PLOT_RIGHT) / 2
    parts.append(_text(middle, bottom + 38, "operations for each byte moved", colour=_GREY, anchor="middle"))
    parts.append(_text(_PLOT_LEFT - 8, top - 12, "FLOP/s", colour=_GREY, anchor="end"))
    return parts


def _roof_lines(reference: Reference, x: _Scale, y: _Scale) -> list[str]:
    lowest = max(10.0**x.low, 10.0**y.low / reference.bytes_per_second)
    corner_x, corner_y = x.at(reference.ridge), y.at(reference.flops)
    slope_y = y.at(roof(reference, lowest))
    return [
        f'<path d="M{x.at(lowest):.1f} {slope_y:.1f} L{corner_x:.1f} {corner_y:.1f} L{_PLOT_RIGHT} {corner_y:.1f}" '
        f'fill="none" stroke="{_INK}" stroke-width="2"/>',
        _text(corner_x - 12, corner_y - 8, f"memory, {size(reference.bytes_per_second)}/s", anchor="end",
              colour=BOUND_COLOURS[Bound.MEMORY]),
        _text(_PLOT_RIGHT, corner_y - 8, f"compute, {operations(reference.flops)}/s", anchor="end",
              colour=BOUND_COLOURS[Bound.COMPUTE]),
    ]  # fmt: skip


def _point(point: Point, reference: Reference, x: _Scale, y: _Scale, label_y: float) -> list[str]:
    at_x, at_y = x.at(point.intensity), y.at(point.flops)
    under = roof(reference, point.intensity)
    colour = BOUND_COLOURS[Bound.MEMORY if point.intensity < reference.ridge else Bound.COMPUTE]
    said = f"{point.label}: {min(1.0, point.flops / under):.0%} of the roof"
    half = _CHAR_PX * len(said) / 2
    wished_x = at_x + half - 8 if point.intensity < reference.ridge else at_x  # clear of the slope
    label_x = min(max(wished_x, _PLOT_LEFT + half + 4), _PLOT_RIGHT - half - 4)
    return [
        f'<line x1="{at_x:.1f}" y1="{at_y:.1f}" x2="{at_x:.1f}" y2="{y.at(under):.1f}" stroke="{colour}" '
        'stroke-dasharray="3 3"/>',
        f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="6" fill="{colour}" stroke="#ffffff" stroke-width="1.5"/>',
        f'<g stroke="#ffffff" stroke-width="4" paint-order="stroke">'
        f"{_text(label_x, label_y, said, anchor='middle', weight=600, colour=colour)}</g>",
    ]


def _column(profile: Profile) -> tuple[list[str], int]:
    """Reasons and advice in words, and where they end."""
    y = _PLOT_TOP - 42
    parts = [_text(_TEXT_LEFT, y, "Why", weight=600)]
    for reason in profile.reasons:
        for line in textwrap.wrap(reason, _TEXT_CHARS):
            y += _TEXT_LINE
            parts.append(_text(_TEXT_LEFT, y, line, colour=_GREY))
        y += 5
    y += 22
    parts.append(_text(_TEXT_LEFT, y, "What to change", weight=600))
    for advice in profile.advice:
        y += _TEXT_LINE + 3
        parts.append(_text(_TEXT_LEFT, y, advice.do, weight=600, colour=BOUND_COLOURS[Bound.COMPUTE]))
        for line in textwrap.wrap(advice.why, _TEXT_CHARS):
            y += _TEXT_LINE
            parts.append(_text(_TEXT_LEFT, y, line, colour=_GREY))
    return parts, y


def _text(
    x: float, y: float, text: str, *, colour: str = _INK, anchor: str = "start", size: int = 12, weight: int = 400
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )
