from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def frozen_heap() -> Iterator[None]:
    """The vllm engine looks for garbage when it is closed. Among all that other tests have loaded that takes seconds:
    only what a test makes itself is looked through."""
    gc.freeze()
    yield
    gc.unfreeze()
