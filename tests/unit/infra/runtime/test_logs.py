from __future__ import annotations

from pathlib import Path

from infra.runtime.logs import last_lines, rotate


def test_the_last_lines_skip_empty_ones(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("one\ntwo\n\nthree  \n\n")

    assert last_lines(log, 2) == ("two", "three")


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "nothing.log", 3) == ()


def test_a_huge_log_with_broken_bytes_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_bytes(b"x" * 100_000 + b"\n\xff last\n")

    assert last_lines(log, 1) == ("� last",)


def test_each_start_has_a_fresh_log_and_the_oldest_goes(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "part.log"
    for start in range(5):
        rotate(log, keep=2)
        log.write_text(str(start))

    assert {file.name: file.read_text() for file in log.parent.iterdir()} == {
        "part.log": "4",
        "part.log.1": "3",
        "part.log.2": "2",
    }
