"""What can go wrong around the parts: one class for each cause, each with a stable code.

The message is one sentence that says what was wrong, with which value, followed by the way out. The command line
prints it as it is; nothing else needs to be added for a person to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar


class InfraError(Exception):
    """The root. `exit_code` is what the command line exits with (2: the user's input, 1: everything else)."""

    code: ClassVar[str] = "infra_error"
    exit_code: ClassVar[int] = 1


class SettingInvalid(InfraError):
    code = "setting_invalid"
    exit_code = 2

    def __init__(self, name: str, value: str, allowed: str) -> None:
        super().__init__(f"{name}={value!r} is not usable: {allowed}.")
        self.name = name


class PortTaken(InfraError):
    code = "port_taken"

    def __init__(self, host: str, port: int, setting: str) -> None:
        super().__init__(
            f"Port {port} on {host} is taken by another program: stop it, or choose another port with {setting} "
            f"(0 takes any free one)."
        )
        self.port = port
        self.setting = setting


class PortUnusable(InfraError):
    code = "port_unusable"

    def __init__(self, host: str, port: int, setting: str, reason: str) -> None:
        super().__init__(
            f"Port {port} on {host} cannot be listened on ({reason}): check the address, or choose another port with "
            f"{setting}."
        )


class NoFreePort(InfraError):
    code = "no_free_port"

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"No free port was found on {host} ({reason}): close some programs and try again.")


class JavaMissing(InfraError):
    code = "java_missing"

    def __init__(self, needed: int) -> None:
        super().__init__(
            f"Apache Kafka needs Java {needed} or newer and no `java` was found in JAVA_HOME or PATH: install one, "
            f"or unset KAFKA_HOME to use the embedded broker."
        )


class JavaUnusable(InfraError):
    code = "java_unusable"

    def __init__(self, java: str, found: str, needed: int) -> None:
        super().__init__(
            f"Apache Kafka needs Java {needed} or newer and {java} is {found}: point JAVA_HOME at a newer one, or "
            f"unset KAFKA_HOME to use the embedded broker."
        )


class KafkaHomeInvalid(InfraError):
    code = "kafka_home_invalid"
    exit_code = 2

    def __init__(self, kafka_home: str) -> None:
        super().__init__(
            f"KAFKA_HOME={kafka_home!r} is not usable: there is no kafka-server jar in its libs folder; point it at "
            f"an unpacked Apache Kafka, or unset it to use the embedded broker."
        )


class EmbeddedBrokerMissing(InfraError):
    code = "embedded_broker_missing"

    def __init__(self, platform: str) -> None:
        super().__init__(
            f"The embedded broker has no build for this platform ({platform}): set "
            f"HEADRACE_KAFKA_BOOTSTRAP_SERVERS to a running Kafka, or KAFKA_HOME to an unpacked Apache Kafka."
        )


class BrokerUnreachable(InfraError):
    code = "broker_unreachable"

    def __init__(self, bootstrap_servers: str, seconds: float) -> None:
        super().__init__(
            f"No Kafka broker answered at {bootstrap_servers} within {seconds:g} s: check that it runs and that "
            f"HEADRACE_KAFKA_BOOTSTRAP_SERVERS names it."
        )


class BrokerFailed(InfraError):
    code = "broker_failed"

    def __init__(self, what: str, exit_status: int, log: Path, last_lines: Sequence[str]) -> None:
        why = f": {last_lines[-1]}" if last_lines else ""
        super().__init__(f"{what} ended with status {exit_status}{why} (whole log: {log}).")


class DiskFull(InfraError):
    code = "disk_full"

    def __init__(self, directory: Path, free_bytes: int, needed_bytes: int) -> None:
        super().__init__(
            f"Only {free_bytes / 1e6:.0f} MB are free under {directory} and {needed_bytes / 1e6:.0f} MB are needed: "
            f"free some space, or move the data with HEADRACE_DATA_DIR."
        )


class DataDirectoryBusy(InfraError):
    code = "data_directory_busy"

    def __init__(self, directory: Path, holder: str) -> None:
        who = f" (process {holder})" if holder else ""
        super().__init__(
            f"Another `headrace up`{who} uses the data directory {directory}: stop it first, or choose another "
            f"directory with HEADRACE_DATA_DIR."
        )


class DataDirectoryUnusable(InfraError):
    code = "data_directory_unusable"

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(
            f"The data directory {directory} cannot be written ({reason}): make it writable, or choose another with "
            f"HEADRACE_DATA_DIR."
        )


class CredentialsUnreadable(InfraError):
    code = "credentials_unreadable"

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file} cannot be used ({reason}): remove it, and a new key is made.")


class NothingRuns(InfraError):
    code = "nothing_runs"

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"Nothing runs on the data directory {directory}: start `headrace up` in another terminal, or set "
            f"HEADRACE_KAFKA_BOOTSTRAP_SERVERS to a Kafka that Headrace uses."
        )


class ModelUnknown(InfraError):
    code = "model_unknown"
    exit_code = 2

    def __init__(self, model: str, known: Sequence[str]) -> None:
        super().__init__(
            f"No model {model!r} is registered (there are: {', '.join(known) or 'none'}): `headrace models add` "
            f"registers one."
        )


class ProfileModelUnknown(InfraError):
    code = "profile_model_unknown"
    exit_code = 2

    def __init__(self, model: str, builtin: Sequence[str]) -> None:
        super().__init__(
            f"{model!r} is neither a model's directory nor built in ({', '.join(builtin)}), and no Headrace runs here "
            f"whose registry might know it: give a directory, or the broker in HEADRACE_KAFKA_BOOTSTRAP_SERVERS."
        )


class ProfileFileUnusable(InfraError):
    code = "profile_file_unusable"
    exit_code = 2

    def __init__(self, option: str, path: Path, why: str) -> None:
        super().__init__(f"{option} {str(path)!r} can't be written: {why}.")


class ContenderInvalid(InfraError):
    code = "contender_invalid"
    exit_code = 2

    def __init__(self, written: str, known: Sequence[str]) -> None:
        super().__init__(
            f"{written!r} names no model with a number format: write NAME, NAME:DTYPE, NAME:int8 or NAME:DTYPE:int8, "
            f"of {', '.join(known)}."
        )


class ModelNotComparable(InfraError):
    code = "model_not_comparable"
    exit_code = 2

    def __init__(self, model: str, engine: str) -> None:
        super().__init__(
            f"{model!r} runs on the {engine} engine, which tells no probabilities of a text: models of the torch "
            f"engine can be compared, and directories."
        )


class ComparisonTextUnusable(InfraError):
    code = "comparison_text_unusable"
    exit_code = 2

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"--text {str(path)!r} can't be used: {why}.")


class ModelFolderInvalid(InfraError):
    code = "model_folder_invalid"
    exit_code = 2

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(
            f"The model in {folder} can't be served: {problem}. Give a folder in Hugging Face's layout "
            "(docs/models.md); if it is on the workers only, add --unchecked."
        )


class AdapterFolderInvalid(InfraError):
    code = "adapter_folder_invalid"
    exit_code = 2

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(
            f"The adapter in {folder} can't be served: {problem}. Give a folder with plain LoRA that PEFT's "
            "save_pretrained wrote (docs/operations.md); if it is on the workers only, add --unchecked."
        )


class SchemaIdsMissing(InfraError):
    code = "schema_ids_missing"

    def __init__(self, names: Sequence[str]) -> None:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        super().__init__(
            f"Events are to be written in Confluent framing, and the log knows no schema id for {shown}: run `headrace "
            f"schemas register`, which asks the schema registry once, or set HEADRACE_FRAMING=single-object."
        )


class GatewayUnreachable(InfraError):
    code = "gateway_unreachable"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"No gateway answers at {url} ({reason}): start `headrace up`, or set HEADRACE_GATEWAY_URL to one that "
            f"runs."
        )


class GatewayRefused(InfraError):
    code = "gateway_refused"

    def __init__(self, url: str, status: int) -> None:
        what = (
            "does not know the API key: set HEADRACE_API_KEY to one that `headrace keys add` has made"
            if status in (401, 403)
            else f"refused the connection with status {status}"
        )
        super().__init__(f"The gateway at {url} {what}.")


class AnswerFailed(InfraError):
    code = "answer_failed"

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(f"{model} gave no answer: {problem}.")


class PartsFailed(InfraError):
    code = "parts_failed"

    def __init__(self, failures: Sequence[tuple[str, str, Path]]) -> None:
        super().__init__(
            "\n".join(f"The {name} could not be started: {why} (log: {log})." for name, why, log in failures)
        )
