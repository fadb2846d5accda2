"""What can be wrong with a model on disk, its tokenizer or its cache: one tree, stable codes.

Every message says what was wrong, with which value, and what to do about it, in a form that can be shown to
the person at the terminal (or, for the request errors, to the client) as it stands.
"""

from typing import ClassVar


class ModelError(Exception):
    """Root of the tree. `code` is stable: callers map it to a status, never the message."""

    code: ClassVar[str] = "model_error"


class TokenizerNotFoundError(ModelError):
    """A tokenizer location names nothing that can be opened."""

    code = "tokenizer_not_found"


class TokenizerInvalidError(ModelError):
    """A tokenizer's files are there and cannot be read."""

    code = "tokenizer_invalid"


class ChatTemplateMissingError(ModelError):
    """Chat messages were given to a model without a chat template (a base model)."""

    code = "chat_template_missing"


class ChatTemplateRefusedError(ModelError):
    """The model's own chat template refused the messages: the request is at fault, not the server."""

    code = "chat_template_refused"


class TextNotEncodableError(ModelError):
    """The text is not Unicode text (it holds lone surrogates): the request is at fault, not the server."""

    code = "text_not_encodable"


class JsonSchemaInvalidError(ModelError):
    """No answer can be held to this JSON schema: the request is at fault, not the server."""

    code = "invalid_json_schema"


class SchemaJudgeBusyError(ModelError):
    """A JSON schema could not be checked just now: the server's fault."""

    code = "schema_judge_busy"


class ModelUnavailableError(ModelError):
    """The newcomer's model is not cached and could not be fetched."""

    code = "model_unavailable"


class PipMissingError(ModelError):
    """The running interpreter has no pip to fetch the model with."""

    code = "pip_missing"


class DiskFullError(ModelError):
    """The disk under the model cache filled up; nothing half-written is left."""

    code = "disk_full"


class CacheUnusableError(ModelError):
    """The model cache cannot be written: permissions, or a file where a directory should be."""

    code = "model_cache_unusable"


class ModelConversionError(ModelError):
    """The fetched weights could not be converted."""

    code = "model_conversion_failed"
