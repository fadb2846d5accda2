"""The README's picture of `make demo`: how it is drawn, and that it is of today's."""

from __future__ import annotations

import io
from xml.etree import ElementTree

from rich.console import Console

from infra.cli.demo import QUESTION, _where_next
from tests.reference.demo import COLUMNS, PICTURE, drawn, screen

UP_AND_CLEAR = "\r\x1b[2K\x1b[1A\x1b[2K"


def lines_in(svg: str) -> list[str]:
    """What can be read in it, line by line."""
    rows: dict[float, str] = {}
    for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if "clip-path" in text.attrib:
            row = float(text.attrib["y"])
            column = round(float(text.attrib["x"]) / 12.2)
            rows[row] = rows.get(row, "").ljust(column) + (text.text or "").replace("\xa0", " ")
    return [rows[row].rstrip() for row in sorted(rows)]


def test_lines_that_were_drawn_over_are_not_shown() -> None:
    written = (
        f"\x1b[?25lone  waits\r\ntwo  waits{UP_AND_CLEAR}one  ready\r\ntwo  ready\r\n\x1b[?25hYou: \x1b[1mhi\x1b[0m\r\n"
    )
    assert screen(written) == ["one  ready", "two  ready", "You: \x1b[1mhi\x1b[0m", ""]


def test_a_picture_shows_the_lines_in_order_and_fetches_nothing() -> None:
    svg = drawn(["broker  \x1b[32mready\x1b[0m", "", "word " * 30, ""])
    assert lines_in(svg)[:4] == ["$ make demo", "", "broker  ready", ""]
    assert [len(line) for line in lines_in(svg)[4:6]] == [99, 49]
    assert "@font-face" not in svg
    assert "url(h" not in svg


def test_the_picture_in_the_readme_ends_with_what_the_demo_says_today() -> None:
    said = io.StringIO()
    _where_next(Console(file=said, width=COLUMNS))
    ends = said.getvalue().rstrip().splitlines()[-3:]
    shown = lines_in(PICTURE.read_text("utf-8"))
    assert f"You: {QUESTION}" in shown
    assert shown[-3:] == ends
