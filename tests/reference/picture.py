"""The life of the recorded request as a picture (SVG): who wrote what to which topic, who read it, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from schemas.topics import kind_of
from tests.reference.story import Story, Told

GATEWAY, VALIDATE, DECIDE, WORKER, SINK = range(5)
LANES = (
    ("gateway", "#0e7490"), ("validate", "#a21caf"), ("quota + route", "#7e22ce"), ("GPU consumer", "#15803d"),
    ("ClickHouse sink", "#b45309"),
)  # fmt: skip
# (event, topic) -> who writes it there, and for whom. The sink reads all of them.
ARROWS = {
    ("RequestSubmitted", "requests"): (GATEWAY, VALIDATE),
    ("RequestValidated", "validated"): (VALIDATE, DECIDE),
    ("RequestAdmitted", "tokens"): (DECIDE, GATEWAY),
    ("RequestRouted", "work"): (DECIDE, WORKER),
    ("GenerationStarted", "tokens"): (WORKER, GATEWAY),
    ("TokensGenerated", "tokens"): (WORKER, GATEWAY),
    ("GenerationFinished", "tokens"): (WORKER, GATEWAY),
    ("GenerationFinished", "validated"): (WORKER, DECIDE),
    ("ResponseDelivered", "lifecycle"): (GATEWAY, SINK),
    ("QuotaSettled", "lifecycle"): (DECIDE, SINK),
}
WIDTH, TOP, ROW, LEFT, LANE = 1040, 190, 46, 190, 190
_INK, _GREY = "#1f2937", "#6b7280"


@dataclass(frozen=True, slots=True)
class Row:
    """One arrow: `count` records, the first of them at_ms after the request was received."""

    at_ms: float
    last_ms: float
    told: Told
    count: int


def svg(story: Story) -> str:
    """The picture. Raises KeyError for an event at a place that ARROWS does not know."""
    rows = rows_of(story)
    height = TOP + ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        "<title>The life of one request</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        *_ribbon(rows),
        *_lanes(height),
    ]
    for number, row in enumerate(rows):
        parts += _arrow(row, TOP + 16 + ROW * number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def rows_of(story: Story) -> list[Row]:
    """The answered request's records; token records behind the first are one row."""
    answered = story.answered
    received_us = answered[0].fields["received_at_us"]
    rows: list[Row] = []
    for told in answered:
        at_ms = (told.at_us - received_us) / 1000
        if len(rows) > 1 and told.name == rows[-1].told.name == rows[-2].told.name == "TokensGenerated":
            rows[-1] = Row(rows[-1].at_ms, at_ms, rows[-1].told, rows[-1].count + 1)
        else:
            rows.append(Row(at_ms, at_ms, told, 1))
    return rows


def _ribbon(rows: Sequence[Row]) -> list[str]:
    """Where the time went, to scale."""
    times = {row.told.name: row.at_ms for row in reversed(rows)}
    end_ms = max(row.last_ms for row in rows)
    ends = (
        ("checks, quota, route", times["RequestRouted"], "#7e22ce"),
        ("queue", times["GenerationStarted"], "#ca8a04"),
        ("prefill", times["TokensGenerated"], "#166534"),
        ("decode", times["GenerationFinished"], "#15803d"),
        ("deliver and settle", end_ms, "#0e7490"),
    )
    x0, width, y = 40, WIDTH - 80, 66
    parts = [
        _text(x0, 30, "The life of one request", size=17, weight=600),
        _text(x0 + width, 30, f"{end_ms:,.0f} ms from end to end, to scale:", colour=_GREY, anchor="end"),
    ]
    start_ms = 0.0
    for name, until_ms, colour in ends:
        x, w = x0 + width * start_ms / end_ms, width * (until_ms - start_ms) / end_ms
        said = f"{name} {until_ms - start_ms:,.1f} ms"
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{max(w, 1):.1f}" height="24" fill="{colour}"/>')
        if w > 8 * len(said):
            parts.append(_text(x + w / 2, y + 16, said, colour="#ffffff", anchor="middle"))
        elif start_ms == 0:
            parts.append(_text(x, y - 7, said, colour=colour))
        elif until_ms == end_ms:
            parts.append(_text(x + w, y - 7, said, colour=colour, anchor="end"))
        else:
            parts.append(_text(x, y + 39, said, colour=colour))
        start_ms = until_ms
    return parts


def _lanes(height: int) -> list[str]:
    parts = []
    for number, (name, colour) in enumerate(LANES):
        x = LEFT + LANE * number
        parts += [
            f'<line x1="{x}" y1="{TOP - 22}" x2="{x}" y2="{height - 20}" stroke="{colour}" stroke-opacity="0.35" '
            'stroke-width="2"/>',
            f'<rect x="{x - 66}" y="{TOP - 48}" width="132" height="26" rx="5" fill="{colour}"/>',
            _text(x, TOP - 31, name, colour="#ffffff", anchor="middle", weight=600),
        ]
    parts.append(_text(LEFT - 82, TOP - 31, "after", colour=_GREY, anchor="end"))
    return parts


def _arrow(row: Row, y: int) -> list[str]:
    kind = kind_of(row.told.topic)
    assert kind is not None
    writer, reader = ARROWS[row.told.name, kind.name]
    colour = LANES[writer][1]
    x1, x2 = LEFT + LANE * writer, LEFT + LANE * reader
    right = x2 > x1
    tip, back = (x2 - 2, x2 - 10) if right else (x2 + 2, x2 + 10)
    at = f"{row.at_ms:,.1f} ms" if row.count == 1 else f"to {row.last_ms:,.1f} ms"
    name = row.told.name if row.count == 1 else f"{row.told.name} × {row.count}"  # noqa: RUF001
    # Beside the writer, in the first gap that the arrow crosses.
    x = x1 + (LANE / 2 if right else -LANE / 2)
    return [
        _text(LEFT - 82, y + 4, at, colour=_INK, anchor="end"),
        f'<line x1="{x1}" y1="{y}" x2="{back}" y2="{y}" stroke="{colour}" stroke-width="1.6"/>',
        f'<path d="M{tip} {y} L{back} {y - 4} L{back} {y + 4} Z" fill="{colour}"/>',
        f'<circle cx="{x1}" cy="{y}" r="4.5" fill="{colour}"/>',
        _text(x, y - 6, name, colour=_INK, anchor="middle", weight=600),
        _text(x, y + 15, row.told.topic, colour=_GREY, anchor="middle", size=11),
    ]


def _text(
    x: float, y: float, text: str, *, colour: str = _INK, anchor: str = "start", size: int = 12, weight: int = 400
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" fill="{colour}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )
