"""Chat messages and the rendering of a model's own chat template to text.

The template is foreign code that came with the model: it runs in jinja2's immutable sandbox, with the same
switches, filters and globals as `transformers.PreTrainedTokenizer.apply_chat_template` gives it, so that a
prompt has the same text here as there.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, NoReturn, Protocol

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.errors import ChatTemplateRefusedError, TokenizerInvalidError


class ChatTurn(Protocol):
    """One turn of a conversation, whoever's class it is: a :class:`schemas.events.Message`, a ChatMessage."""

    @property
    def role(self) -> str:
        """What the model's template knows: system, user, assistant."""
        ...

    @property
    def content(self) -> str: ...


class ChatMessage(NamedTuple):
    """A turn, for those who have no class of their own."""

    role: str
    content: str


class ChatTemplate:
    """A compiled chat template.

    Raises :class:`TokenizerInvalidError` at once if `source` is not valid jinja2.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """`special_tokens` are the variables that templates expect, such as `bos_token` and `eos_token`."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        self._special_tokens = dict(special_tokens)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TokenizerInvalidError(
                f"the model's chat template is not valid jinja2 (line {error.lineno}: {error.message}); "
                "repair chat_template.jinja or the chat_template of tokenizer_config.json"
            ) from error

    def render(self, messages: Sequence[ChatTurn], *, at: datetime | None = None) -> str:
        """The prompt for `messages`, ending with the generation prompt (the opening of the answer).

        `at` is the time that a template sees if it prints today's date. Pass the request's own time, so that
        every process that renders the request makes the same prompt; left out, it is the present, in UTC.
        Raises :class:`ChatTemplateRefusedError` with the template's own words.
        """
        moment = datetime.now(UTC) if at is None else at
        try:
            return self._template.render(
                messages=[{"role": turn.role, "content": turn.content} for turn in messages],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                strftime_now=moment.strftime,
                **self._special_tokens,
            )
        except Exception as error:  # A template is foreign code: it may fail in any way Python can.
            raise ChatTemplateRefusedError(
                f"the model's chat template refuses these messages: {error}; check the roles and their order"
            ) from error


class _GenerationBlock(Extension):
    """`{% generation %}`…`{% endgeneration %}` marks the answer for training; for us it is transparent."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja2's own `tojson` escapes HTML, which a prompt must not."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
