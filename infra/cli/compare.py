"""`headrace models compare`: two models on one text, side by side."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from infra.cli.context import settings_with_warnings
from infra.cli.waiting import telling
from infra.comparison_text import comparison_text
from infra.contender import Contender, contender
from infra.errors import ModelNotComparable

if TYPE_CHECKING:
    from gpu_consumers.comparison.run import Comparison, Subject
    from infra.settings import Settings
    from schemas.events import ModelRegistered

_BUSY: Final = 0.5
"""Processes per core that wait to run before this one begins: above, its speeds are partly those of others."""


@click.command("compare")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--text", "text_file", type=click.Path(path_type=Path), help="A file in UTF-8.  [default: a sample of ours]"
)
@click.option("--device", help="cpu, cuda, cuda:0.  [default: HEADRACE_DEVICE]")
@click.option("--threads", type=click.IntRange(1, 1024), help="[default: HEADRACE_THREADS]")
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 600),
    default=3.0,
    show_default=True,
    help="For each of three measurements of speed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON, and nothing else.")
def compare(
    a: str, b: str, text_file: Path | None, device: str | None, threads: int | None, seconds: float, as_json: bool
) -> None:
    """Hold two models against each other: quality on a text, agreement, speed, memory.

    A and B are each a directory, `smollm2`, or what a registry knows (a version, an alias, a deployment). A number
    format may follow, as in `smollm2:float32`, `smollm2:int8`, `smollm2:float32:int8`; without one HEADRACE_DTYPE and
    HEADRACE_QUANTIZATION say it. They run one after the other, on the engine that would serve them. Nothing is written
    to any log, and no broker is needed but for registered models.
    """
    settings = settings_with_warnings()
    given: dict[str, Any] = {"device": device, "threads": threads}
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    contenders = [contender(written, Contender("", settings.dtype, settings.quantization)) for written in (a, b)]
    text = comparison_text(text_file)
    console = Console(stderr=True) if as_json else Console()
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    found = _run(settings, contenders, text.text, seconds, console)

    from infra.comparison_report import as_numbers, render

    if as_json:
        click.echo(json.dumps(as_numbers(found, text.name), indent=2))
        return
    remark = None
    if busy > _BUSY:
        remark = (
            f"The machine was busy before ({busy:.1f} running processes per core): speeds are too low, and may be so "
            "for one of the two more than for the other."
        )
    console.print(render(found, text.name, remark))


def _run(settings: Settings, contenders: list[Contender], text: str, seconds: float, console: Console) -> Comparison:
    from eventlog.clock import monotonic, now_us
    from gpu_consumers.comparison.run import run_comparison
    from gpu_consumers.comparison.speed import Stopwatch
    from gpu_consumers.profiling.reference import synchronizer
    from infra.cli.model_progress import ensure_smollm2_with_progress
    from infra.profiled_model import profiled_model
    from infra.seed import read_registry
    from infra.wiring import broker_profile, connected

    @cache
    def registry() -> Any:
        return read_registry(broker_profile(connected(settings)), "headrace-compare")

    registered = []
    for each in contenders:
        model = profiled_model(
            each.name,
            longest_tokens=0,
            now_us=now_us(),
            smollm2=lambda: ensure_smollm2_with_progress(settings.cache_dir, console),
            registry=registry,
        )
        if model.engine != "torch":
            raise ModelNotComparable(each.name, model.engine)
        registered.append(model)
    with telling(console) as told:
        told("preparing")
        subjects = [_subject(settings, *pair) for pair in zip(contenders, registered, strict=True)]
        _import_architectures(registered)
        return run_comparison(
            subjects[0],
            subjects[1],
            text,
            Stopwatch(monotonic, threading.Event().wait, synchronizer(settings.device), seconds),
            told=told,
            give_back=_give_back,
        )


def _subject(settings: Settings, contender: Contender, model: ModelRegistered) -> Subject:
    from eventlog.profile import BrokerProfile
    from gpu_consumers.comparison.run import Subject
    from gpu_consumers.comparison.speed import MANY
    from gpu_consumers.engine_choice import open_engine
    from infra.services import worker_settings
    from models.tokenizer import open_tokenizer

    # Steps of the engine's own size: in smaller ones prompts and decodes may never come apart.
    own = replace(
        settings,
        dtype=contender.dtype,
        quantization=contender.quantization,
        slots=MANY,
        max_step_tokens=None,
        tensor_parallel=1,
    )
    worker = worker_settings(own, BrokerProfile("none:0"), model.deployment)
    return Subject(
        contender.label,
        open_tokenizer(model.tokenizer),
        model.context_tokens,
        partial(open_engine, model, worker),
    )


def _import_architectures(models: list[ModelRegistered]) -> None:
    """Before the first is loaded: else its time to load would be that of imports."""
    from gpu_consumers.engines.torch.checkpoint import import_architecture

    for model in models:
        import_architecture(Path(model.location))


def _give_back() -> None:
    """What torch keeps of the first model's memory on a CUDA device, for the second."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
