from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpu_consumers.spot_notice import watch_for_notice
from tests.timing import within


async def test_a_notice_that_comes_sets_stop(tmp_path: Path) -> None:
    stop = asyncio.Event()
    watching = asyncio.create_task(watch_for_notice(tmp_path / "notice", stop))
    await asyncio.sleep(0.05)
    assert not stop.is_set()
    (tmp_path / "notice").touch()
    await asyncio.wait_for(watching, within(10))
    assert stop.is_set()


async def test_a_notice_that_is_there_from_the_beginning_sets_stop(tmp_path: Path) -> None:
    (tmp_path / "notice").touch()
    stop = asyncio.Event()
    await asyncio.wait_for(watch_for_notice(tmp_path / "notice", stop), within(10))
    assert stop.is_set()


async def test_a_look_that_fails_is_no_notice_and_not_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []

    def fails_once(file: Path) -> bool:
        looks.append(file)
        if len(looks) == 1:
            raise PermissionError("not yours")
        return True

    monkeypatch.setattr("gpu_consumers.spot_notice._LOOK_SECONDS", 0.01)
    monkeypatch.setattr(Path, "exists", fails_once)
    stop = asyncio.Event()
    await asyncio.wait_for(watch_for_notice(tmp_path / "notice", stop), within(10))
    assert stop.is_set()
    assert len(looks) == 2


async def test_who_stops_anyway_needs_no_notice(tmp_path: Path) -> None:
    stop = asyncio.Event()
    watching = asyncio.create_task(watch_for_notice(tmp_path / "notice", stop))
    stop.set()
    await asyncio.wait_for(watching, within(10))
