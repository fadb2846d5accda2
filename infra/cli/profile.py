"""`headrace profile`: what a worker is bound by, and what to change."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from infra.cli.context import settings_with_warnings
from infra.cli.waiting import telling
from infra.errors import ProfileFileUnusable

if TYPE_CHECKING:
    from gpu_consumers.profiling.load import Load
    from gpu_consumers.profiling.run import Profile
    from infra.settings import Settings

_TOKENS = click.IntRange(min=1)
_PICTURE = Path("headrace-profile.svg")


@click.command()
@click.argument("model", required=False)
@click.option(
    "--engine", type=click.Choice(["torch", "vllm"]), default="torch", help="For a directory.", show_default=True
)
@click.option("--device", help="Of the torch engine: cpu, cuda, cuda:0.  [default: HEADRACE_DEVICE]")
@click.option("--dtype", type=click.Choice(["bfloat16", "float16", "float32"]), help="[default: HEADRACE_DTYPE]")
@click.option("--quantization", type=click.Choice(["none", "int8"]), help="[default: HEADRACE_QUANTIZATION]")
@click.option("--slots", type=click.IntRange(1, 1024), help="[default: HEADRACE_SLOTS]")
@click.option("--max-step-tokens", type=_TOKENS, help="[default: HEADRACE_MAX_STEP_TOKENS]")
@click.option("--threads", type=click.IntRange(1, 1024), help="[default: HEADRACE_THREADS]")
@click.option("--concurrency", type=_TOKENS, help="Requests in the worker at any time.  [default: the slots]")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Requests a second instead, at random times.")
@click.option("--prompt-tokens", type=_TOKENS, default=128, show_default=True, help="In the mean.")
@click.option("--output-tokens", type=_TOKENS, default=64, show_default=True, help="In the mean.")
@click.option("--temperature", type=click.FloatRange(0, 2), default=1.0, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(0.1, 3600), default=8.0, show_default=True, help="How long to measure."
)
@click.option("--requests", type=_TOKENS, help="Stop when so many are answered, if that is sooner.")
@click.option("--trace", type=click.Path(path_type=Path, dir_okay=False), help="Write a Chrome trace here.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    default=_PICTURE,
    show_default=True,
    help="Where the picture (SVG) goes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON, and nothing else.")
def profile(
    model: str | None,
    engine: str,
    device: str | None,
    dtype: str | None,
    quantization: str | None,
    slots: int | None,
    max_step_tokens: int | None,
    threads: int | None,
    concurrency: int | None,
    rate: float | None,
    prompt_tokens: int,
    output_tokens: int,
    temperature: float,
    seconds: float,
    requests: int | None,
    trace: Path | None,
    picture: Path,
    as_json: bool,
) -> None:
    """Run a load on a worker's inner loop and tell what it is bound by, with evidence, and what to change.

    MODEL is a directory, `smollm2`, `echo`, or what a registry knows: a version, an alias, a deployment. Nothing is
    written to any log, and no broker is needed but for the last.  [default: HEADRACE_MODEL]
    """
    if rate is not None and concurrency is not None:
        raise click.UsageError("--concurrency and --rate are two kinds of load: give one of them.")
    given: dict[str, Any] = {
        "device": device, "dtype": dtype, "quantization": quantization, "slots": slots,
        "max_step_tokens": max_step_tokens, "threads": threads, "model": model,
    }  # fmt: skip
    settings = replace(settings_with_warnings(), **{name: value for name, value in given.items() if value is not None})
    for option, path in (("--picture", picture), ("--trace", trace)):
        _check_writable(option, path)

    from gpu_consumers.profiling.load import Load
    from gpu_consumers.profiling.loop import Until
    from infra.profile_report import as_numbers

    load = Load(prompt_tokens, output_tokens, concurrency or settings.slots, rate, temperature)
    console = Console(stderr=True) if as_json else Console()
    found = _run(settings, load, Until(seconds, requests=requests), trace, engine, console)
    _write_picture(found, picture)
    if as_json:
        click.echo(json.dumps(as_numbers(found), indent=2))
    else:
        _show(found, console, picture, trace)


def _run(settings: Settings, load: Load, until: Any, trace: Path | None, engine_kind: str, console: Console) -> Profile:
    """Open the engine as a worker does, and profile it."""
    from eventlog.clock import monotonic, now_us
    from eventlog.profile import BrokerProfile
    from gpu_consumers.engine_choice import open_engine
    from gpu_consumers.generation import Model
    from gpu_consumers.profiling.advice import Setup
    from gpu_consumers.profiling.run import Options, run_profile
    from gpu_consumers.profiling.weights import model_costs
    from infra.cli.model_progress import ensure_smollm2_with_progress
    from infra.profiled_model import profiled_model
    from infra.seed import read_registry
    from infra.services import worker_settings
    from infra.wiring import broker_profile, connected
    from models.tokenizer import open_tokenizer

    registered = profiled_model(
        settings.model,
        longest_tokens=load.longest_tokens,
        now_us=now_us(),
        smollm2=lambda: ensure_smollm2_with_progress(settings.cache_dir, console),
        registry=lambda: read_registry(broker_profile(connected(settings)), "headrace-profile"),
        engine=engine_kind,
    )
    is_echo = registered.engine == "echo"
    is_int8 = registered.engine == "torch" and settings.quantization == "int8"
    device = _device_of(registered.engine, settings)
    busy_before = os.getloadavg()[0]
    with telling(console) as told:
        told(f"loading {registered.location}")
        tokenizer = open_tokenizer(registered.tokenizer)
        engine = open_engine(
            registered, worker_settings(settings, BrokerProfile("none:0"), registered.deployment), tokenizer
        )
        try:
            told("warming up")
            engine.warm_up()
            return run_profile(
                engine,
                Model(tokenizer, engine.info.eos_token_ids),
                load,
                Setup(
                    engine=engine.info.name,
                    slots=engine.info.slots,
                    dtype="bytes" if is_echo else settings.dtype,
                    on_cpu=device == "cpu",
                    threads=_threads(is_echo),
                    cores=os.cpu_count() or 1,
                    quantized=is_int8,
                    busy_before=busy_before,
                ),
                Options(device, until, trace, observed=registered.engine == "torch" or trace is not None),
                name=settings.model.rstrip("/").rpartition("/")[2],
                costs=None
                if is_echo
                else model_costs(Path(registered.location), settings.dtype, weight_bytes=1 if is_int8 else None),
                clock=monotonic,
                wait=threading.Event().wait,
                told=told,
            )
        finally:
            engine.close()


def _device_of(engine: str, settings: Settings) -> str:
    """vLLM takes the device that it finds, whatever the settings say."""
    if engine != "vllm":
        return settings.device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _threads(is_echo: bool) -> int:
    if is_echo:
        return 1
    import torch

    return torch.get_num_threads()


def _check_writable(option: str, path: Path | None) -> None:
    """Before anything takes long. Raises ProfileFileUnusable."""
    if path is None:
        return
    if option == "--picture" and path.suffix != ".svg":
        raise ProfileFileUnusable(option, path, "pictures are SVG, which every browser shows: name it .svg")
    if not path.absolute().parent.is_dir():
        raise ProfileFileUnusable(option, path, f"there is no folder {path.parent}")


def _write_picture(found: Profile, picture: Path) -> None:
    from gpu_consumers.profiling.picture import svg

    try:
        picture.write_text(svg(found), encoding="utf-8")
    except OSError as error:
        raise ProfileFileUnusable("--picture", picture, error.strerror or str(error)) from error


def _show(found: Profile, console: Console, picture: Path, trace: Path | None) -> None:
    from infra.profile_report import render

    console.print(render(found, console.width))
    console.print(f"\nPicture: {picture}", markup=False, highlight=False, soft_wrap=True)
    if trace is not None:
        console.print(f"Trace:   {trace} (open it in a browser: chrome://tracing, or ui.perfetto.dev)",
                      markup=False, highlight=False, soft_wrap=True)  # fmt: skip
