"""`headrace chat`: an interactive client over WebSocket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

import headrace_client
from headrace_client import ChatMessage, ResponseEnd, ResponseFailed, SyncResponse, SyncStream
from headrace_client.answer import problem_of
from infra.cli.context import settings_with_warnings
from infra.credentials import read_credentials
from infra.errors import GatewayRefused, GatewayUnreachable
from infra.runtime.data_directory import DataDirectory
from infra.settings import Settings

_HELP = "Ctrl-C cancels the running answer; /new forgets the conversation; /quit (or Ctrl-D) leaves."


@click.command()
@click.option("--model", default="smollm2", show_default=True, help="An alias, name@version, or a LoRA adapter.")
@click.option("--system", help="Instructions that stand before the conversation.")
@click.option(
    "--temperature", type=click.FloatRange(0, 2), default=0.0, show_default=True,
    help="0 takes the likeliest token; a small model wanders off at the API's default of 1.",
)  # fmt: skip
@click.option("--seed", type=int, help="Makes an answer at a temperature above 0 the same each time.")
def chat(model: str, system: str | None, temperature: float, seed: int | None) -> None:
    """Talk to a model. The answer streams; a lost connection is resumed where it stood."""
    with suppress(ImportError):
        import readline  # noqa: F401 - input() edits lines and keeps their history where this is there
    url, api_key = gateway_and_key(settings_with_warnings())
    sampling = {"temperature": temperature, "seed": seed}
    start: list[ChatMessage] = [ChatMessage(role="system", content=system)] if system else []
    history = list(start)
    with gateway_errors(url), SyncStream(url, api_key=api_key) as stream:
        click.echo(f"{model} at {url}. {_HELP}", err=True)
        while (line := _read_line()) is not None:
            if line == "/new":
                history = list(start)
            elif line:
                history.append(ChatMessage(role="user", content=line))
                history.append(ChatMessage(role="assistant", content=_answer(stream, model, history, sampling)))


@contextmanager
def gateway_errors(url: str) -> Iterator[None]:
    """What the client says of a gateway, with what to set or start in this command line."""
    try:
        yield
    except headrace_client.GatewayRefused as error:
        raise GatewayRefused(url, error.status) from error
    except headrace_client.GatewayUnreachable as error:
        raise GatewayUnreachable(url, str(error)) from error


def gateway_and_key(settings: Settings) -> tuple[str, str]:
    """Where to connect and with which key: as set, or as `headrace up` has announced. Raises ClickException."""
    directory = DataDirectory(settings.data_dir)
    url, api_key = settings.gateway_url, settings.api_key
    if url is None:
        running = directory.running()
        if running is None:
            raise click.ClickException(
                f"Nothing runs on the data directory {settings.data_dir}: start `headrace up` in another terminal, or "
                f"set HEADRACE_GATEWAY_URL to a gateway that runs, and HEADRACE_API_KEY."
            )
        url = running.gateway_url
    if api_key is None:
        credentials = read_credentials(directory.credentials)
        if credentials is None:
            raise click.UsageError("no API key is known: set HEADRACE_API_KEY to one that `headrace keys add` made.")
        api_key = credentials.api_key
    return url, api_key


def problem_with(end: ResponseEnd) -> str:
    """What there is to say of an answer that is not whole, for people; empty for one that is."""
    if isinstance(end, ResponseFailed):
        return f"failed: {problem_of(end).message}"
    details = end.response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    return "" if end.status == "completed" else f"{end.status}: {reason}" if reason else end.status


def _answer(stream: SyncStream, model: str, history: Sequence[ChatMessage], sampling: Mapping[str, Any]) -> str:
    """Write the answer to standard output as it comes, and what went wrong to standard error; the text.

    Ctrl-C cancels the answer.
    """
    text: list[str] = []
    try:
        response = stream.create(model=model, input=history, **sampling)
        problem = problem_with(_show(response, text))
    except headrace_client.RequestProblem as error:
        problem = f"failed: {error.message}"
    except KeyboardInterrupt:  # before it began
        problem = "cancelled"
    click.echo()
    if problem:
        click.echo(f"[{problem}]", err=True)
    return "".join(text)


def _show(response: SyncResponse, text: list[str]) -> ResponseEnd:
    while True:
        try:
            for delta in response.text_deltas():
                text.append(delta)
                click.echo(delta, nl=False)
            break
        except KeyboardInterrupt:
            response.cancel()
    assert response.end is not None
    return response.end


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
