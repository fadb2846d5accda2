"""The wheel and the source archive stand by themselves: what they need of the contract is in them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.timing import within

ROOT = Path(__file__).resolve().parents[3]
CONTRACT = sorted(
    str(path.relative_to(ROOT / "schemas")) for path in (ROOT / "schemas").rglob("*") if path.suffix in (".avsc", ".py")
)
USE_IT = """
import sys, pathlib
import headrace_client
from headrace_client.contract.codec import decode, encode
from headrace_client.contract.events import Message, RequestSubmitted
event = RequestSubmitted(request_id="r", tenant="t", at_us=1, received_at_us=1, source="s", model="m",
                         messages=(Message(role="user", content="hi"),))
assert decode(encode(event)) == event
assert pathlib.Path(headrace_client.__file__).is_relative_to(sys.prefix), headrace_client.__file__
assert not {"torch", "transformers", "schemas", "gateway", "eventlog"} & set(sys.modules), sys.modules.keys()
"""
BUILD = "import sys, setuptools.build_meta as build; print(getattr(build, sys.argv[1])(sys.argv[2]))"


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=within(100), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(kind: str, source: Path, into: Path) -> Path:
    """Built offline, with the setuptools that is here."""
    return into / run(sys.executable, "-c", BUILD, kind, into, cwd=source).splitlines()[-1]


@pytest.fixture(scope="module")
def source_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from a copy of what git has, so that nothing is built in the working tree."""
    folder = tmp_path_factory.mktemp("client")
    copy = folder / "repository"
    for part in ("clients/python", "schemas", "LICENSE"):
        (copy / part).parent.mkdir(parents=True, exist_ok=True)
        run("cp", "-a", ROOT / part, copy / part, cwd=ROOT)  # links stay links
    return built("build_sdist", copy / "clients/python", folder)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_of_the_source_archive_works_in_an_environment_of_its_own(
    source_archive: Path, tmp_path: Path
) -> None:
    with tarfile.open(source_archive) as archive:
        assert not any(member.issym() for member in archive.getmembers())
        archive.extractall(tmp_path, filter="data")
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    wheel = built("build_wheel", source, tmp_path)

    with zipfile.ZipFile(wheel) as files:
        packed = {name.removeprefix("headrace_client/contract/") for name in files.namelist()}
    assert set(CONTRACT) <= packed
    assert "headrace_client/py.typed" in packed

    home = tmp_path / "venv"
    venv.create(home, with_pip=False, system_site_packages=False)
    site = run(home / "bin/python", "-c", "import site; print(site.getsitepackages()[0])", cwd=tmp_path).strip()
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=tmp_path)
    for dependency in ("confluent_kafka", "fastavro", "websockets"):
        (Path(site) / dependency).symlink_to(Path(__import__(dependency).__file__ or "").parent)
    libraries = Path(__import__("confluent_kafka").__file__ or "").parent.parent / "confluent_kafka.libs"
    if libraries.exists():
        (Path(site) / libraries.name).symlink_to(libraries)
    run(home / "bin/python", "-c", USE_IT, cwd=tmp_path)
    listed = run(
        sys.executable, "-m", "pip", "--python", home / "bin/python", "show", "-f", "headrace-client", cwd=tmp_path
    )
    assert "headrace_client/contract/avro/RequestSubmitted.avsc" in listed
