"""Every setting, in one place: the only reader of the environment.

A setting FOO of this class is the variable HEADRACE_FOO. docs/settings.md is made from this file.
"""

# ruff: noqa: RUF009 - `setting` makes a dataclass field

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from infra.errors import SettingInvalid
from infra.setting_types import (
    HoldsSecret,
    SettingInfo,
    number,
    one_of,
    partitions,
    path,
    port,
    servers,
    setting,
    text,
    url,
    url_without_user,
)
from infra.setting_types import whole_number as whole

PREFIX = "HEADRACE_"
# The tests' own variables; no part of the product reads them.
_NOT_OURS = ("HEADRACE_TEST_", "HEADRACE_REQUIRE_")


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked values. Whoever needs one takes it from here; nobody else looks into the environment."""

    # Where things are kept
    data_dir: Path = setting(
        Path(".headrace"), path, "All state: the broker's log, ClickHouse, credentials, logs", shown=".headrace"
    )
    cache_dir: Path = setting(
        Path("~/.cache/headrace"), path, "Converted models, shared by all data directories", shown="~/.cache/headrace"
    )
    log_level: str = setting("info", one_of("debug", "info", "warning", "error"), "How much the parts write to logs")

    # The broker
    kafka_bootstrap_servers: str | None = setting(
        None, servers, "A Kafka that runs already, as host:port,...", shown="none: one is started"
    )
    kafka_port: int = setting(9092, port, "Port of the broker that is started here (0: any free one)")
    broker: str = setting(
        "auto",
        one_of("auto", "kafka", "embedded"),
        "Which broker is started, or, with bootstrap servers, what they are; auto: Apache Kafka if KAFKA_HOME is set "
        "(or for bootstrap servers), else the embedded one",
    )
    kafka_home: str | None = setting(
        None, text, "An unpacked Apache Kafka to start", shown="none", variable="KAFKA_HOME"
    )
    java_home: str | None = setting(None, text, "The Java for it", shown="java in PATH", variable="JAVA_HOME")
    kafka_security_protocol: str | None = setting(
        None, one_of("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"), "How clients speak to Kafka", shown="plaintext"
    )
    kafka_sasl_mechanism: str | None = setting(
        None, one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"), "SASL mechanism", shown="none"
    )
    kafka_sasl_username: str | None = setting(None, text, "SASL user", shown="none")
    kafka_sasl_password: str | None = setting(None, text, "SASL password", shown="none", secret=True)
    kafka_ssl_ca_location: Path | None = setting(None, path, "CA certificates (PEM)", shown="the system's")

    # Topics: counts are taken when a topic is made; those of tokens must never shrink
    requests_partitions: int = setting(4, partitions, "Partitions of each requests.<tenant>")
    validated_partitions: int = setting(4, partitions, "Partitions of validated")
    work_partitions: int = setting(4, partitions, "Partitions of each work.<deployment>.<tenant>")
    tokens_partitions: int = setting(4, partitions, "Partitions of each tokens.<tenant>")

    # How events are written
    framing: str | None = setting(
        None,
        one_of("single-object", "confluent"),
        "What stands before an event: its schema's fingerprint (Avro single-object encoding) or its id in the schema "
        "registry (Confluent framing); readers take both",
        shown="confluent with a schema registry, else single-object",
    )
    schema_registry_url: str | None = setting(
        None,
        url_without_user("http", "https"),
        "A schema registry with Confluent's API; asked by `headrace schemas register` and `headrace up`, and by parts "
        "only for schemas that others have registered",
        shown="none",
    )
    schema_registry_username: str | None = setting(None, text, "User of the schema registry, or API key", shown="none")
    schema_registry_password: str | None = setting(
        None, text, "Password of the schema registry, or API secret", shown="none", secret=True
    )
    schema_registry_token: str | None = setting(
        None, text, "Bearer token of the schema registry, instead of a user", shown="none", secret=True
    )
    schema_registry_ca_location: Path | None = setting(
        None, path, "CA certificates (PEM) of the schema registry", shown="the usual ones"
    )

    # ClickHouse
    clickhouse_dsn: str | None = setting(
        None,
        url("http", "https", "clickhouse", "clickhouses"),
        "A ClickHouse server, as http://user:password@host:8123/headrace",
        shown="none: chDB in the sink's process",
        secret=True,
    )
    clickhouse_port: int = setting(8123, port, "Port of chDB's HTTP interface (0: any free one)")

    # The gateway
    gateway_host: str = setting("127.0.0.1", text, "Address that the gateway listens on")
    gateway_port: int = setting(8080, port, "Port of the gateway (0: any free one)")
    gateway_url: str | None = setting(
        None, url("http", "https"), "The gateway that `headrace chat` talks to", shown="the one that runs here"
    )
    api_key: str | None = setting(None, text, "API key for `headrace chat`", shown="the demo tenant's", secret=True)

    # The GPU consumer
    model: str = setting(
        "smollm2",
        text,
        "What a worker serves: name@version, or an alias; `headrace up` knows `smollm2`, `echo` and `smollm2,echo`",
    )
    device: str = setting("cpu", text, "Device of the torch engine: cpu, cuda, cuda:0")
    dtype: str = setting("bfloat16", one_of("bfloat16", "float16", "float32"), "Number format of the torch engine")
    quantization: str = setting(
        "none", one_of("none", "int8"), "Weights of the torch engine's matrix products: as they are, or in int8"
    )
    tensor_parallel: int = setting(
        1, whole(1, 64), "Processes that share one model of the torch engine, each with a CUDA device of its own"
    )
    slots: int = setting(16, whole(1, 1_024), "Sequences that one worker runs at once")
    max_step_tokens: int | None = setting(
        None,
        whole(1, 1 << 20),
        "Most tokens in one step of a worker, prefill and decode together; at least HEADRACE_SLOTS",
        shown="the engine's choice",
    )
    threads: int | None = setting(None, whole(1, 1_024), "CPU threads of the torch engine", shown="torch's choice")
    kv_cache_mib: int | None = setting(
        None,
        whole(1, 1 << 24),
        "Memory for keys and values of the torch engine, fixed at the start; measured: half of the memory that is "
        "available, or on CUDA what weights and a step leave; never more than all slots can use",
        shown="measured",
    )
    prefix_cache_mib: int = setting(
        256, whole(0, 1 << 20), "How much of it may keep what is left of earlier prompts, for those that begin alike"
    )
    adapter_places: int = setting(8, whole(0, 1_024), "LoRA adapters that a worker holds at once (0: it runs none)")
    adapter_max_rank: int = setting(64, whole(1, 1_024), "The highest rank of a LoRA adapter that a worker loads")
    echo_tokens_per_second: float = setting(200.0, number(0.1, 1e6), "Rate of the echo engine, for each sequence")

    drain_seconds: float = setting(
        2.5,
        number(0, 3600),
        "How long a worker that is to stop finishes what can be finished in that time; the rest goes to other workers "
        "(0: all of it, at once; under `headrace up` always 0)",
    )
    spot_notice_file: Path | None = setting(
        None, path, "When this file is there, the worker stops as if it was told to", shown="none"
    )

    # What workers and gateways tell of themselves: the topic `telemetry`
    telemetry_seconds: float = setting(
        5.0, number(0, 3600), "Seconds between two reports of a worker or gateway (0: none)"
    )
    throughput_seconds: float = setting(
        1.0, number(0, 600), "How long a worker may measure its engine before it takes work (0: not at all)"
    )

    # Prometheus' text format; the gateway has its own at /metrics
    streams_metrics_port: int | None = setting(
        None, port, "Metrics of the streams, on loopback (0: any free port)", shown="none"
    )
    worker_metrics_port: int | None = setting(
        None, port, "Metrics of a worker, on loopback (0: any free port)", shown="none"
    )
    sink_metrics_port: int | None = setting(
        None, port, "Metrics of the sink, on loopback (0: any free port)", shown="none"
    )

    def environment(self) -> dict[str, str]:
        """These settings as variables: what reads them back gets equal Settings."""
        values = ((variable_of(f), getattr(self, f.name)) for f in fields(self))
        return {name: _as_text(value) for name, value in values if value is not None}


def load_settings(environment: Mapping[str, str] | None = None) -> tuple[Settings, list[str]]:
    """The settings that the environment says, and warnings about variables that look like one and are none.

    An empty variable is as good as none. Raises SettingInvalid, which names the variable, its value and what is
    allowed.
    """
    variables = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    for f in fields(Settings):
        value = variables.get(variable_of(f), "")
        if value:
            found[f.name] = _parse(variable_of(f), value, info_of(f))
    for name in ("data_dir", "cache_dir"):
        found.setdefault(name, path(str(Settings.__dataclass_fields__[name].default)))
    return Settings(**found), _unknown(variables)


def inherited_environment() -> dict[str, str]:
    """What a part sees of this process's environment before its own settings are laid over it."""
    return dict(os.environ)


def info_of(f: Field[Any]) -> SettingInfo:
    info = f.metadata["setting"]
    assert isinstance(info, SettingInfo)
    return info


def variable_of(f: Field[Any]) -> str:
    return info_of(f).variable or PREFIX + f.name.upper()


def settings_table() -> str:
    """The table of docs/settings.md."""
    rows = [(variable_of(f), info_of(f).default_shown, info_of(f).about) for f in fields(Settings)]
    lines = [f"| `{name}` | {default} | {about} |" for name, default, about in rows]
    return "\n".join(["| variable | default | what it is |", "|---|---|---|", *lines]) + "\n"


def _parse(name: str, value: str, info: SettingInfo) -> Any:
    try:
        return info.parse(value)
    except ValueError as error:
        hidden = info.secret or isinstance(error, HoldsSecret)
        raise SettingInvalid(name, "***" if hidden else value, str(error)) from None


def _as_text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _unknown(variables: Mapping[str, str]) -> list[str]:
    known = [variable_of(f) for f in fields(Settings) if variable_of(f).startswith(PREFIX)]
    warnings = []
    for name in sorted(variables):
        if not name.startswith(PREFIX) or name.startswith(_NOT_OURS) or name in known:
            continue
        # Without the prefix, which they all share.
        near = difflib.get_close_matches(name[len(PREFIX) :], [k.removeprefix(PREFIX) for k in known], 1)
        hint = f"did you mean {PREFIX}{near[0]}?" if near else "docs/settings.md lists all of them."
        warnings.append(f"{name} is no setting and changes nothing: {hint}")
    return warnings
