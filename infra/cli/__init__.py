"""The command line, `headrace`. Commands are imported when they are called, so that `--help` is instant."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

# name -> (where it is, what it does)
COMMANDS = {
    "demo": ("infra.cli.demo:demo", "Start everything, stream one real answer, show where the time went"),
    "up": ("infra.cli.up:up", "Start everything on this machine and keep it running"),
    "chat": ("infra.cli.chat:chat", "Talk to a model"),
    "gateway": ("infra.cli.parts:gateway", "Run one gateway (for a cluster; `up` runs one by itself)"),
    "streams": ("infra.cli.parts:streams", "Run one stream processor: validate, quota, route"),
    "worker": ("infra.cli.parts:worker", "Run one GPU consumer"),
    "sink": ("infra.cli.parts:sink", "Run one ClickHouse sink"),
    "tenants": ("infra.cli.tenants:tenants", "List tenants, add one, change its limits"),
    "keys": ("infra.cli.keys:keys", "List, add and revoke API keys"),
    "models": ("infra.cli.models:models", "List and add model versions, and compare two"),
    "routes": ("infra.cli.routes:routes", "Show and set what model aliases resolve to"),
    "dead-letters": (
        "infra.cli.dead_letters:dead_letters",
        "Show messages that nobody could read, and requeue them",
    ),
    "schemas": ("infra.cli.schemas:schemas", "List the events, and check what may change in them"),
    "adapters": ("infra.cli.adapters:adapters", "List and add LoRA adapters of model versions"),
    "workers": ("infra.cli.workers:workers", "Show the workers and gateways that run, and how busy they are"),
    "profile": ("infra.cli.profile:profile", "Tell what a worker is bound by, and what to change"),
    "sql": ("infra.cli.analyst:sql", "Ask ClickHouse"),
    "explain": ("infra.cli.analyst:explain", "Draw the waterfall of one response, with every decision"),
    "settings": ("infra.cli.settings:settings", "Show every setting with its value"),
    "version": ("infra.cli.version:version", "Show the version of Headrace"),
}


class LazyGroup(click.Group):
    """Knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Headrace serves language models as an event-sourced stream on Kafka.

    New here? `headrace demo`. Settings are environment variables: `headrace settings` shows them.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 it could not be done, 2 the input was wrong, 130 interrupted."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """`main` without the exit: the status. Every error becomes one sentence; tracebacks go to a log file."""
    try:
        status = cli.main(arguments, prog_name="headrace", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:
        from infra.cli.failures import report

        return report(error)
    return status if isinstance(status, int) else 0
