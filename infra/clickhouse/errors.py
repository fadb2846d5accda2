"""What can go wrong between a question and ClickHouse's answer."""

from __future__ import annotations

import re

from infra.errors import InfraError

# chDB puts the code in front of messages that have it already, and its version behind them.
_REPEATED_CODE = re.compile(r"(Code: \d+\. DB::Exception: )(?:(?:default: )?Code: \d+\. DB::Exception: )*")
_TRAILER = re.compile(r"\s*\(version [^()]*(?:\([^()]*\))?[^()]*\)\.?\s*")
_NAME = re.compile(r"\(([A-Z][A-Z0-9_]+)\)")
_CODE = re.compile(r"Code: (\d+)\.")


class ClickHouseFault(Exception):
    """An error as ClickHouse gives it. number: its code (0: none). name: such as UNKNOWN_TABLE ("" : none).

    message: what was wrong, in one line, without code, name and version.
    """

    def __init__(self, number: int, name: str, message: str) -> None:
        super().__init__(message)
        self.number, self.name, self.message = number, name, message

    @property
    def text(self) -> str:
        """The form in which ClickHouse writes it."""
        return f"Code: {self.number}. DB::Exception: {self.message} ({self.name})"

    @classmethod
    def parse(cls, text: str) -> ClickHouseFault:
        """From ClickHouse's own words, however often they were wrapped."""
        bare = _TRAILER.sub(" ", _REPEATED_CODE.sub(r"\1", " ".join(text.split())))
        code, names = _CODE.search(bare), _NAME.findall(bare)
        name = names[-1] if names else ""
        message = bare[bare.index("DB::Exception: ") + 15 :] if "DB::Exception: " in bare else bare
        for found in dict.fromkeys(names[-2:]):
            message = message.replace(f" ({found})", "")
        return cls(int(code[1]) if code else 0, name, message.strip().rstrip(".") + ".")


class QueryFailed(InfraError):
    """ClickHouse did not answer the question. `fault` is what it said."""

    code = "query_failed"

    def __init__(self, fault: ClickHouseFault) -> None:
        # A syntax error goes on with every token that could have stood there: two dozen, and none helps.
        message = fault.message.split(" Expected one of: ")[0]
        super().__init__(f"ClickHouse says: {message}" + (f" ({fault.name})" if fault.name else ""))
        self.fault = fault


class ClickHouseUnreachable(InfraError):
    code = "clickhouse_unreachable"

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(
            f"No ClickHouse answers at {where} ({reason}): start `headrace up`, or check HEADRACE_CLICKHOUSE_DSN."
        )


class NothingRecorded(InfraError):
    code = "nothing_recorded"

    def __init__(self, path: object) -> None:
        super().__init__(
            f"There is no ClickHouse at {path} yet: run `headrace up` once, or set HEADRACE_DATA_DIR or "
            f"HEADRACE_CLICKHOUSE_DSN to where your data is."
        )


class ClickHouseBusy(InfraError):
    code = "clickhouse_busy"

    def __init__(self, path: object) -> None:
        super().__init__(
            f"Another process has {path} open and no `headrace up` of this data directory says where it listens: stop "
            f"that process, or ask it over its HTTP interface."
        )
