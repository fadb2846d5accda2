import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders
from tokenizers.models import WordLevel

from models.chat import ChatMessage
from models.errors import (
    ChatTemplateMissingError,
    ChatTemplateRefusedError,
    TextNotEncodableError,
    TokenizerInvalidError,
    TokenizerNotFoundError,
)
from models.tokenizer import ByteTokenizer, DirectoryTokenizer, open_tokenizer
from schemas.events import Message
from tests.tiny_model import CHAT_TEMPLATE, make_tiny_tokenizer, tiny_tokenizer

CONVERSATION = [
    ChatMessage("system", "Be brief.  "),
    ChatMessage("user", "Où est la mer ? 🌊\n\n<b>&amp;</b>"),
    ChatMessage("assistant", "To the west."),
    ChatMessage("user", "Write out <|im_end|> please"),
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_tiny_tokenizer(tmp_path / "tiny")


def edit_config(directory: Path, **entries: Any) -> None:
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


class TestByteTokenizer:
    def test_a_text_has_one_token_a_byte_and_comes_back(self) -> None:
        tokenizer = open_tokenizer("bytes")
        ids = tokenizer.encode("aé🌊")

        assert ids == [0x61, 0xC3, 0xA9, 0xF0, 0x9F, 0x8C, 0x8A]
        assert tokenizer.decode(ids) == "aé🌊"
        assert max(ids) < tokenizer.vocabulary_size == 257

    def test_a_chat_is_its_contents_one_a_line(self) -> None:
        messages = [ChatMessage("system", "one"), ChatMessage("user", "two")]

        assert ByteTokenizer().decode(ByteTokenizer().encode_chat(messages)) == "one\ntwo"

    def test_the_end_and_unknown_ids_have_no_text(self) -> None:
        assert ByteTokenizer().decode([0x61, 256, 0x62, 999]) == "ab"
        assert ByteTokenizer().eos_token_ids == {256}


class TestDirectoryTokenizer:
    @pytest.mark.parametrize("messages", [CONVERSATION, CONVERSATION[1:2], CONVERSATION[:2]])
    def test_a_chat_has_the_tokens_that_transformers_gives_it(
        self, directory: Path, messages: Sequence[ChatMessage]
    ) -> None:
        assert DirectoryTokenizer.open(directory).encode_chat(messages) == ids_of_transformers(directory, messages)

    @pytest.mark.parametrize("name", ["directory", "bytes"])
    def test_the_messages_of_an_event_are_taken_as_they_are(self, directory: Path, name: str) -> None:
        tokenizer = open_tokenizer(str(directory) if name == "directory" else name)
        of_event = [Message(role=message.role, content=message.content) for message in CONVERSATION]

        assert tokenizer.encode_chat(of_event) == tokenizer.encode_chat(CONVERSATION)

    @pytest.mark.parametrize(
        "template",
        [
            "{{ bos_token }}{% for m in messages %}{{ m | tojson }}{{ eos_token }}{% endfor %}",
            "{% for m in messages %}\n  {% if loop.index > 2 %}{% break %}{% endif %}\n{{ m.content }}\n{% endfor %}\n",
            "{% for m in messages %}{% generation %}{{ m.content | trim }}{% endgeneration %}{% endfor %}",
            "{{ messages | tojson(indent=2) }}{{ tools is none }}{{ add_generation_prompt }}",
        ],
    )
    def test_a_template_renders_as_in_transformers(self, directory: Path, template: str) -> None:
        (directory / "chat_template.jinja").write_text(template)
        edit_config(directory, bos_token={"content": "<|im_start|>", "__type": "AddedToken"})

        assert DirectoryTokenizer.open(directory).encode_chat(CONVERSATION) == ids_of_transformers(
            directory, CONVERSATION
        )

    def test_a_template_prints_the_date_of_the_request(self, directory: Path) -> None:
        (directory / "chat_template.jinja").write_text("{{ strftime_now('%d %b %Y') }}: {{ messages[0].content }}")
        tokenizer = DirectoryTokenizer.open(directory)
        at = datetime(2024, 2, 29, tzinfo=UTC)

        assert tokenizer.decode(tokenizer.encode_chat([ChatMessage("user", "hi")], at=at)) == "29 Feb 2024: hi"

    @pytest.mark.parametrize("template", [CHAT_TEMPLATE, [{"name": "default", "template": CHAT_TEMPLATE}]])
    def test_a_template_is_also_found_in_the_configuration(self, directory: Path, template: object) -> None:
        expected = DirectoryTokenizer.open(directory).encode_chat(CONVERSATION)
        (directory / "chat_template.jinja").unlink()
        edit_config(directory, chat_template=template)

        assert DirectoryTokenizer.open(directory).encode_chat(CONVERSATION) == expected

    def test_messages_to_a_model_without_a_template_are_refused(self, directory: Path) -> None:
        (directory / "chat_template.jinja").unlink()

        with pytest.raises(ChatTemplateMissingError, match="no chat template"):
            DirectoryTokenizer.open(directory).encode_chat(CONVERSATION)

    @pytest.mark.parametrize(
        ("template", "words"),
        [
            ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
            ("{{ messages[0].content + 1 }}", "can only concatenate"),
            ("{{ messages.append(1) }}", "refuses these messages"),
            ("{{ ''.__class__.__mro__ }}", "refuses these messages"),
        ],
    )
    def test_a_template_that_refuses_says_why(self, directory: Path, template: str, words: str) -> None:
        (directory / "chat_template.jinja").write_text(template)

        with pytest.raises(ChatTemplateRefusedError, match=words):
            DirectoryTokenizer.open(directory).encode_chat(CONVERSATION)

    def test_a_stored_truncation_does_not_shorten_prompts(self, directory: Path) -> None:
        tokenizer = tiny_tokenizer()
        tokenizer.enable_truncation(max_length=3)
        tokenizer.enable_padding(length=8)
        tokenizer.save(str(directory / "tokenizer.json"))

        opened = DirectoryTokenizer.open(directory)

        assert opened.encode("b") == tiny_tokenizer().encode("b").ids
        assert len(opened.encode("0123456789")) > 3

    def test_special_tokens_are_silent_and_the_end_is_one_of_them(self, directory: Path) -> None:
        tokenizer = DirectoryTokenizer.open(directory)
        (end,) = tokenizer.eos_token_ids

        assert tokenizer.is_silent(end)
        assert tokenizer.is_silent(tokenizer.vocabulary_size)
        assert tokenizer.decode([*tokenizer.encode("ab"), end, tokenizer.vocabulary_size]) == "ab"

    def test_the_end_tokens_are_those_of_generate(self, directory: Path) -> None:
        (directory / "config.json").write_text('{"eos_token_id": 5}')
        assert DirectoryTokenizer.open(directory).eos_token_ids == {5}

        (directory / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
        assert DirectoryTokenizer.open(directory).eos_token_ids == {7, 8}

    def test_byte_tokens_are_unsettled_only_for_a_decoder_that_takes_them_for_bytes(self) -> None:
        vocabulary = {"<0x41>": 0, "a": 1}
        with_bytes = tokenizers.Tokenizer(WordLevel(vocabulary, unk_token="a"))
        with_bytes.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        without = tokenizers.Tokenizer(WordLevel(vocabulary, unk_token="a"))

        assert [DirectoryTokenizer(with_bytes).is_unsettled(i) for i in (0, 1)] == [True, False]
        assert not DirectoryTokenizer(without).is_unsettled(0)


class TestBadInput:
    @pytest.mark.parametrize("location", ["bytes", "directory"])
    def test_a_lone_surrogate_is_refused(self, directory: Path, location: str) -> None:
        tokenizer = open_tokenizer(str(directory) if location == "directory" else location)

        with pytest.raises(TextNotEncodableError, match="at character 2"):
            tokenizer.encode("ab\ud800c")
        with pytest.raises(TextNotEncodableError):
            tokenizer.encode_chat([ChatMessage("user", "\udfff")])

    def test_a_location_that_is_nowhere_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(TokenizerNotFoundError, match="no-such-model"):
            open_tokenizer(str(tmp_path / "no-such-model"))

    def test_a_directory_without_a_tokenizer_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(TokenizerNotFoundError, match=r"no tokenizer\.json"):
            open_tokenizer(str(tmp_path))

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("tokenizer.json", b"{"),
            ("tokenizer_config.json", b"{"),
            ("tokenizer_config.json", b"[]"),
            ("chat_template.jinja", b"{% for"),
            ("chat_template.jinja", b"\xff"),
        ],
    )
    def test_a_broken_file_is_named(self, directory: Path, name: str, content: bytes) -> None:
        (directory / name).write_bytes(content)

        with pytest.raises(TokenizerInvalidError, match=name.replace(".", r"\.")):
            open_tokenizer(str(directory))


def test_importing_the_package_loads_neither_torch_nor_transformers() -> None:
    code = "import sys, models.tokenizer, models.detokenizer; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


def ids_of_transformers(directory: Path, messages: Sequence[ChatMessage]) -> list[int]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    chat = [message._asdict() for message in messages]
    ids: list[int] = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    return ids
