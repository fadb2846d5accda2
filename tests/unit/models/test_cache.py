import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from models.cache import is_complete, make_once
from models.errors import CacheUnusableError, DiskFullError
from tests.timing import within

IDENTITY = {"sha256": "abc"}


class Maker:
    """Makes a directory of one file, or fails, and remembers how often it was asked to."""

    def __init__(self, content: str = "weights", error: Exception | None = None) -> None:
        self.made = 0
        self.waited = 0
        self._content = content
        self._error = error

    def make(self, destination: Path, scratch: Path) -> None:
        self.made += 1
        (scratch / "download").write_text("thrown away")
        (destination / "model").write_text(self._content)
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        self.waited += 1

    def ensure(self, directory: Path, identity: dict[str, str] = IDENTITY, needed_bytes: int = 1_000) -> Path:
        return make_once(directory, identity, needed_bytes=needed_bytes, make=self.make, waiting=self.wait)


def test_a_directory_is_made_once_and_nothing_else_is_left(tmp_path: Path) -> None:
    maker = Maker()
    directory = tmp_path / "cache" / "model"

    assert maker.ensure(directory) == maker.ensure(directory) == directory

    assert (maker.made, maker.waited) == (1, 0)
    assert (directory / "model").read_text() == "weights"
    assert sorted(path.name for path in directory.parent.iterdir()) == [".model.lock", "model"]


@pytest.mark.parametrize("damage", ["cut short", "file gone", "manifest gone", "manifest broken"])
def test_a_damaged_directory_is_made_again(tmp_path: Path, damage: str) -> None:
    directory = Maker().ensure(tmp_path / "model")
    match damage:
        case "cut short":
            (directory / "model").write_text("wei")
        case "file gone":
            (directory / "model").unlink()
        case "manifest gone":
            (directory / "manifest.json").unlink()
        case "manifest broken":
            (directory / "manifest.json").write_text("[1]")

    assert not is_complete(directory, IDENTITY)
    Maker("again").ensure(directory)

    assert (directory / "model").read_text() == "again"
    assert is_complete(directory, IDENTITY)


def test_another_source_replaces_what_is_cached(tmp_path: Path) -> None:
    Maker("old").ensure(tmp_path / "model")
    Maker("new").ensure(tmp_path / "model", {"sha256": "def"})

    assert (tmp_path / "model" / "model").read_text() == "new"


def test_a_failure_leaves_nothing_and_comes_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        Maker(error=ZeroDivisionError()).ensure(tmp_path / "model")

    assert [path.name for path in tmp_path.iterdir()] == [".model.lock"]


def test_a_second_maker_waits_for_the_first_and_makes_nothing(tmp_path: Path) -> None:
    started, second_waits = threading.Event(), threading.Event()
    second = Maker()

    def make_slowly(destination: Path, scratch: Path) -> None:
        started.set()
        assert second_waits.wait(within(20))
        (destination / "model").write_text("first")

    def first() -> None:
        make_once(tmp_path / "model", IDENTITY, needed_bytes=1, make=make_slowly, waiting=second.wait)

    thread = threading.Thread(target=first)
    thread.start()
    assert started.wait(within(20))
    make_once(tmp_path / "model", IDENTITY, needed_bytes=1, make=second.make, waiting=second_waits.set)
    thread.join()

    assert (second.made, second.waited) == (0, 0)
    assert (tmp_path / "model" / "model").read_text() == "first"


def test_a_killed_maker_blocks_nobody_and_its_leftovers_go(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, models.cache\n"
        "def make(destination, scratch):\n"
        "    (destination / 'model').write_text('half')\n"
        "    print('making', flush=True)\n"
        "    sys.stdin.read()\n"
        "models.cache.make_once(pathlib.Path(sys.argv[1]), {}, needed_bytes=1, make=make, waiting=print)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "making\n"
        process.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.glob(".model.partial-*"))) == 1

    maker = Maker()
    maker.ensure(tmp_path / "model")

    assert maker.waited == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.lock", "model"]


def test_too_little_space_is_said_before_the_work_begins(tmp_path: Path) -> None:
    maker = Maker()

    with pytest.raises(DiskFullError, match="about 1000000000000 MB"):
        maker.ensure(tmp_path / "model", needed_bytes=10**18)
    assert maker.made == 0


def test_a_disk_that_fills_up_half_way_leaves_nothing(tmp_path: Path) -> None:
    maker = Maker(error=full_disk())

    with pytest.raises(DiskFullError, match="HEADRACE_CACHE_DIR"):
        maker.ensure(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == [".model.lock"]


def full_disk() -> OSError:
    """The error of a real device that is full."""
    with pytest.raises(OSError, match="No space left") as caught:
        Path("/dev/full").write_text("x")
    return caught.value


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(CacheUnusableError, match="file"):
        Maker().ensure(tmp_path / "file" / "model")
