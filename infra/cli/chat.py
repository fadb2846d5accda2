"""`headrace chat`: an interactive client over WebSocket."""

from __future__ import annotations

from contextlib import suppress

import click

from infra.cli.context import settings_with_warnings
from infra.client.socket import Message, ResponseStream, Session
from infra.credentials import read_credentials
from infra.errors import NothingRuns
from infra.runtime.data_directory import DataDirectory
from infra.settings import Settings

_HELP = "Ctrl-C cancels the running answer; /new forgets the conversation; /quit (or Ctrl-D) leaves."


@click.command()
@click.option("--model", default="smollm2", show_default=True, help="An alias, or a pinned name@version.")
@click.option("--system", help="Instructions that stand before the conversation.")
def chat(model: str, system: str | None) -> None:
    """Talk to a model. The answer streams; a lost connection is resumed where it stood."""
    with suppress(ImportError):
        import readline  # noqa: F401 - input() edits lines and keeps their history where this is there
    url, api_key = gateway_and_key(settings_with_warnings())
    start: list[Message] = [Message(role="system", content=system)] if system else []
    history = list(start)
    with Session(url, api_key) as session:
        click.echo(f"{model} at {url}. {_HELP}", err=True)
        while (line := _read_line()) is not None:
            if line == "/new":
                history = list(start)
            elif line:
                history.append(Message(role="user", content=line))
                answer = show(session.ask(model, history))
                history.append(Message(role="assistant", content=answer))


def gateway_and_key(settings: Settings) -> tuple[str, str]:
    """Where to connect and with which key: as set, or as `headrace up` has announced. Raises NothingRuns."""
    directory = DataDirectory(settings.data_dir)
    url, api_key = settings.gateway_url, settings.api_key
    if url is None:
        running = directory.running()
        if running is None:
            raise NothingRuns(settings.data_dir)
        url = running.gateway_url
    if api_key is None:
        credentials = read_credentials(directory.credentials)
        if credentials is None:
            raise click.UsageError("no API key is known: set HEADRACE_API_KEY to one that `headrace keys add` made.")
        api_key = credentials.api_key
    return url, api_key


def show(stream: ResponseStream) -> str:
    """Write the answer to standard output as it comes, and what went wrong to standard error; the text.

    Ctrl-C cancels the answer.
    """
    while True:
        try:
            for delta in stream:
                click.echo(delta, nl=False)
            break
        except KeyboardInterrupt:
            stream.cancel()
    click.echo()
    answer = stream.answer
    if answer.status != "completed":
        click.echo(f"[{answer.status}{': ' if answer.problem else ''}{answer.problem}]", err=True)
    return answer.text


def _read_line() -> str | None:
    """The next line; None to leave. Ctrl-C gives up the line."""
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            click.echo()
            return None
        except KeyboardInterrupt:
            click.echo()
            continue
        return None if line in ("/quit", "/exit") else line
