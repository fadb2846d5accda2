"""Text to token ids and back: the port, and the two tokenizers behind it.

`"bytes"` is the tokenizer of the echo engine and of tests: no files, every text has an exact token count.
Anything else is the directory of a model in Hugging Face's layout. Neither needs torch or transformers.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol, Self

import tokenizers

from models.chat import ChatTemplate, ChatTurn
from models.errors import (
    ChatTemplateMissingError,
    TextNotEncodableError,
    TokenizerInvalidError,
    TokenizerNotFoundError,
)
from models.token_bytes import TokenBytes

BYTES_LOCATION: Final = "bytes"


class Tokenizer(Protocol):
    """What the rest of Headrace may know of a model's tokenizer. Safe to share between threads."""

    @property
    def vocabulary_size(self) -> int:
        """One more than the highest token id that `encode` can give."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end an answer: those that `generate()` stops on. May be empty."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of a bare prompt, with the special tokens that the model wants around one.

        Raises :class:`TextNotEncodableError` for a text with lone surrogates.
        """
        ...

    def encode_chat(self, messages: Sequence[ChatTurn], *, at: datetime | None = None) -> list[int]:
        """Token ids of a conversation, up to and including the opening of the answer.

        `at` is the date that a template may print (see :meth:`models.chat.ChatTemplate.render`).
        Raises :class:`ChatTemplateMissingError`, :class:`ChatTemplateRefusedError` or
        :class:`TextNotEncodableError`.
        """
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of `token_ids` without special tokens; broken bytes become U+FFFD."""
        ...

    def is_silent(self, token_id: int) -> bool:
        """True if `decode` leaves the token out altogether: a special token, or an id it does not know."""
        ...

    def is_unsettled(self, token_id: int) -> bool:
        """True if the token's text, even when it is whole by itself, can still be changed by the next token.

        Such are the `<0xNN>` tokens of sentencepiece-like tokenizers, whose decoder judges a run of them as
        one: the run is text only if all of it is valid UTF-8.
        """
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text, in UTF-8: a piece of a character, maybe; nothing where `is_silent`.

        Of ordinary text the bytes of its tokens, joined, are the text. Two decoders take something back: those of
        sentencepiece drop the space that a text begins with, and of `<0xNN>` tokens that are no UTF-8 they replace
        the whole run.
        """
        ...


class ByteTokenizer:
    """Ids 0 to 255 are the bytes of UTF-8 and 256 ends an answer. A chat is its contents, one a line."""

    EOS: Final = 256

    @property
    def vocabulary_size(self) -> int:
        return self.EOS + 1

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset({self.EOS})

    def encode(self, text: str) -> list[int]:
        try:
            return list(text.encode())
        except UnicodeEncodeError as error:
            raise _not_encodable(error) from error

    def encode_chat(self, messages: Sequence[ChatTurn], *, at: datetime | None = None) -> list[int]:
        return self.encode("\n".join(message.content for message in messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(i for i in token_ids if not self.is_silent(i)).decode(errors="replace")

    def is_silent(self, token_id: int) -> bool:
        return not 0 <= token_id < self.EOS

    def is_unsettled(self, token_id: int) -> bool:
        return False

    def token_bytes(self, token_id: int) -> bytes:
        return b"" if self.is_silent(token_id) else bytes([token_id])


class DirectoryTokenizer:
    """The tokenizer of a model directory: `tokenizer.json`, `tokenizer_config.json`, the chat template.

    Special tokens written out in a message (such as `<|im_end|>`) become those tokens, exactly as with
    transformers: the template's text and the client's text are not told apart.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        chat_template: ChatTemplate | None = None,
        eos_token_ids: frozenset[int] = frozenset(),
        name: str = "this model",
    ) -> None:
        """Takes over `tokenizer`; `name` is what error messages call the model."""
        # A tokenizer.json keeps the truncation and padding of whoever trained it; a prompt wants neither.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._chat_template = chat_template
        self._eos_token_ids = eos_token_ids
        self._name = name
        self._vocabulary_size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self._special = frozenset(i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special)
        self._unsettled = _byte_fallback_ids(tokenizer)
        self._bytes = TokenBytes(tokenizer, byte_ids=self._unsettled)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Read a model directory.

        Raises :class:`TokenizerNotFoundError` if it has no tokenizer.json, and
        :class:`TokenizerInvalidError` if a file cannot be read.
        """
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise TokenizerNotFoundError(
                f"no tokenizer.json in {str(directory)!r}; give the directory of a model in Hugging Face's "
                f"layout, or {BYTES_LOCATION!r}"
            )
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise TokenizerInvalidError(f"cannot read {str(path)!r}: {error}; fetch the model again") from error
        config = _read_json(directory / "tokenizer_config.json")
        special_tokens = _special_tokens(_read_json(directory / "special_tokens_map.json")) | _special_tokens(config)
        source = _chat_template_source(directory, config)
        return cls(
            tokenizer,
            chat_template=None if source is None else ChatTemplate(source, special_tokens),
            eos_token_ids=_eos_token_ids(directory, tokenizer, special_tokens),
            name=str(directory),
        )

    @property
    def vocabulary_size(self) -> int:
        return self._vocabulary_size

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._eos_token_ids

    def encode(self, text: str) -> list[int]:
        return self._encode(text, add_special_tokens=True)

    def encode_chat(self, messages: Sequence[ChatTurn], *, at: datetime | None = None) -> list[int]:
        if self._chat_template is None:
            raise ChatTemplateMissingError(
                f"{self._name} has no chat template, so it takes a bare prompt and no messages; "
                "use completions, or a model tuned for chat"
            )
        # The template writes the special tokens itself, the first one included.
        return self._encode(self._chat_template.render(messages, at=at), add_special_tokens=False)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=True)

    def is_silent(self, token_id: int) -> bool:
        return token_id in self._special or self._tokenizer.id_to_token(token_id) is None

    def is_unsettled(self, token_id: int) -> bool:
        return token_id in self._unsettled

    def token_bytes(self, token_id: int) -> bytes:
        return b"" if self.is_silent(token_id) else self._bytes.of(token_id)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode()  # tokenizers reports lone surrogates as a TypeError that names neither
        except UnicodeEncodeError as error:
            raise _not_encodable(error) from error
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids


def open_tokenizer(location: str) -> Tokenizer:
    """The tokenizer at `location`: `"bytes"`, or the path of a model directory.

    Raises :class:`TokenizerNotFoundError` or :class:`TokenizerInvalidError`.
    """
    if location == BYTES_LOCATION:
        return ByteTokenizer()
    directory = Path(location)
    if not directory.is_dir():
        raise TokenizerNotFoundError(
            f"no tokenizer at {location!r}: it is neither {BYTES_LOCATION!r} nor a directory; "
            "give the path of a model directory"
        )
    return DirectoryTokenizer.open(directory)


def _not_encodable(error: UnicodeEncodeError) -> TextNotEncodableError:
    return TextNotEncodableError(
        f"the text holds half of a surrogate pair at character {error.start}, which is no Unicode text; "
        "send well-formed Unicode"
    )


def _byte_fallback_ids(tokenizer: tokenizers.Tokenizer) -> frozenset[int]:
    """Ids of the `<0xNN>` tokens, if the tokenizer's decoder takes them for bytes; else none."""
    probe = tokenizer.token_to_id("<0x41>")
    if probe is None or tokenizer.decode([probe]) != "A":
        return frozenset()
    ids = (tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
    return frozenset(i for i in ids if i is not None)


def _read_json(path: Path) -> Mapping[str, Any]:
    """The object in `path`; empty if there is no such file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TokenizerInvalidError(f"cannot read {str(path)!r}: {error}; fetch the model again") from error
    if not isinstance(content, dict):
        raise TokenizerInvalidError(f"{str(path)!r} holds no JSON object; fetch the model again")
    return content


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token`, `eos_token` and the like, which configurations give as text or as an object with it."""
    tokens = {}
    for key, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            tokens[key] = text
    return tokens


def _chat_template_source(directory: Path, config: Mapping[str, Any]) -> str | None:
    """The template: of its own file, else of the configuration (one, or a list with one named default)."""
    path = directory / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise TokenizerInvalidError(f"cannot read {str(path)!r}: {error}; fetch the model again") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template}.get("default")
    return template if isinstance(template, str) else None


def _eos_token_ids(
    directory: Path, tokenizer: tokenizers.Tokenizer, special_tokens: Mapping[str, str]
) -> frozenset[int]:
    """What `generate()` stops on: of generation_config.json, else of config.json, else the tokenizer's own."""
    for name in ("generation_config.json", "config.json"):
        value = _read_json(directory / name).get("eos_token_id")
        if value is not None:
            return frozenset(value if isinstance(value, list) else [value])
    own = tokenizer.token_to_id(special_tokens.get("eos_token", ""))
    return frozenset() if own is None else frozenset({own})
