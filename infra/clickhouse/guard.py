"""What chDB must not be asked by a reader. Pure.

The engine's own `readonly` refuses every write. But chDB is an engine in our process, and four things that a server has
no danger in are left to us: INTO OUTFILE (a client's feature there) writes any file, the function `file` reads any
file, the table function `Python` reads our variables, and KILL QUERY would end the sink's own inserts.

The statement is looked at in ClickHouse's canonical form (`formatQuery`), where comments are gone, strings are in
single quotes and names are bare or in backticks: so these few lines read what the engine's own parser understood.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from infra.clickhouse.errors import ClickHouseFault

_TOKENS = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|\"(?:[^\"\\]|\\.)*\"|\w+|[^\w\s]", re.DOTALL)
_FORBIDDEN_NAMES = frozenset({"file", "python"})
_FORBIDDEN_STATEMENTS = frozenset({"kill", "backup", "restore"})
_REFUSED = 164, "READONLY"


@dataclass(frozen=True, slots=True)
class Statement:
    """format: what its FORMAT clause says; None if it has none."""

    format: str | None


def inspect(canonical: str) -> Statement:
    """Raises ClickHouseFault for what a reader may not do."""
    tokens: Sequence[str] = _TOKENS.findall(canonical)
    words = [token.casefold() for token in tokens]
    if words and words[0] in _FORBIDDEN_STATEMENTS:
        raise ClickHouseFault(*_REFUSED, f"{tokens[0]} is not allowed in readonly mode.")
    for word, following in pairwise([*words, ""]):
        if word == "into" and following == "outfile":
            raise ClickHouseFault(*_REFUSED, "INTO OUTFILE is not allowed: take the answer over HTTP.")
        if word.strip('`"') in _FORBIDDEN_NAMES:
            raise ClickHouseFault(*_REFUSED, f"{word} is not allowed here, as a function or as a name.")
    return Statement(_format_of(tokens))


def _format_of(tokens: Sequence[str]) -> str | None:
    depth, found = 0, None
    for token, following in pairwise(tokens):
        depth += (token == "(") - (token == ")")
        if depth == 0 and token.upper() == "FORMAT" and following.isidentifier():
            found = following
    return found
