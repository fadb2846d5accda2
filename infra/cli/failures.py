"""What a person sees of an exception: one sentence. The traceback goes to a file."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import click

from infra.errors import InfraError
from infra.runtime.data_directory import DataDirectory
from infra.settings import load_settings

_OURS = frozenset({"infra", "headrace_client", "eventlog", "models", "schemas", "gateway", "streams", "gpu_consumers"})


def is_ours(error: BaseException) -> bool:
    """One of the errors that Headrace's folders define: its message is made for people."""
    return type(error).__module__.partition(".")[0] in _OURS and isinstance(getattr(error, "code", None), str)


def is_lasting(error: BaseException) -> bool:
    """One of ours that starting again does not mend: a wrong setting, a model or an engine that can't be had."""
    folder = type(error).__module__.partition(".")[0]
    return is_ours(error) and (folder in ("models", "gpu_consumers") or getattr(error, "exit_code", 1) == 2)


def report(error: Exception) -> int:
    """Say what went wrong on standard error; the exit status."""
    logging.getLogger("headrace").debug("this ended the command", exc_info=error)
    if is_ours(error):
        click.echo(f"Error: {error}", err=True)
        status = getattr(error, "exit_code", 1)
        return int(status)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    log = _write_traceback(error)
    if log is None:
        click.echo("".join(traceback.format_exception(error)), err=True)
        click.echo(f"Error: something that Headrace did not expect: {what}", err=True)
    else:
        click.echo(f"Error: something that Headrace did not expect: {what} (details: {log})", err=True)
    return 1


def _write_traceback(error: Exception) -> Path | None:
    """To the data directory's logs, if there is one; a command must not leave a new folder behind for this."""
    try:
        settings, _ = load_settings()
        log = DataDirectory(settings.data_dir).log_of("headrace")
        if not log.parent.is_dir():
            return None
        with log.open("a") as output:
            output.write("".join(traceback.format_exception(error)))
    except (OSError, InfraError):
        return None
    return log
