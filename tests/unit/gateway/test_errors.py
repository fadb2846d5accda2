"""What clients are told."""

from __future__ import annotations

import pytest

from gateway import errors
from tests.gateway_events import failed, rejected, submitted


def test_an_error_has_the_shape_of_openais() -> None:
    error = errors.InvalidRequest("no", param="model")
    detail = {"type": "invalid_request_error", "code": "invalid_value", "message": "no", "param": "model"}
    assert error.body("r1") == {"error": {**detail, "request_id": "r1"}}
    assert error.headers() == {}


@pytest.mark.parametrize(("milliseconds", "seconds"), [(1, "1"), (1000, "1"), (1001, "2"), (0, "1")])
def test_retry_after_is_whole_seconds_and_never_early(milliseconds: int, seconds: str) -> None:
    assert errors.Overloaded("no", retry_after_ms=milliseconds).headers() == {"retry-after": seconds}


@pytest.mark.parametrize(("status", "answered"), [(429, 429), (503, 503), (0, 400), (200, 400), (700, 400)])
def test_a_rejection_keeps_its_status_if_it_is_that_of_an_error(status: int, answered: int) -> None:
    assert errors.ResponseFailed(rejected(submitted(), status, "t", "c")).status == answered


def test_a_failure_keeps_what_the_worker_said() -> None:
    error = errors.ResponseFailed(failed(submitted()))
    assert error.detail() == {
        "type": "server_error",
        "code": "engine_failed",
        "message": "the engine failed",
        "param": None,
    }
