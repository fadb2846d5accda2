"""Every model's tokenizer, opened once and shared."""

from __future__ import annotations

import threading

from models.tokenizer import Tokenizer, open_tokenizer
from schemas.events import ModelRegistered


class TokenizerShelf:
    """Tokenizers by location. Safe to share between threads."""

    def __init__(self) -> None:
        self._open: dict[str, Tokenizer] = {}
        self._lock = threading.Lock()

    def get(self, model: ModelRegistered) -> Tokenizer:
        """The model's own tokenizer. Raises ModelError if it can't be opened; the next call tries again."""
        found = self._open.get(model.tokenizer)
        if found is None:
            with self._lock:  # two threads would both read the files
                found = self._open.get(model.tokenizer) or open_tokenizer(model.tokenizer)
                self._open[model.tokenizer] = found
        return found
