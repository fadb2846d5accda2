"""`make docs`: write the page and the picture anew; --record runs the system first and writes down what happened."""

from __future__ import annotations

import argparse

from tests.reference.page import files
from tests.reference.story import STORY_FILE, load


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.reference", description=__doc__)
    parser.add_argument("--record", action="store_true", help="run the system and record docs/life-of-a-request.json")
    parser.add_argument("--demo", action="store_true", help="run `make demo` and draw docs/images/demo.svg")
    chosen = parser.parse_args()
    if chosen.demo:
        from tests.reference import demo

        demo.PICTURE.write_text(demo.picture(), "utf-8")
    if chosen.record:
        from tests.reference.record import record

        STORY_FILE.write_text(record(), "utf-8")
    for file, text in files(load()).items():
        file.write_text(text, "utf-8")


main()
