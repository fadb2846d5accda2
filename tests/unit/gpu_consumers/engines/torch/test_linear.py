from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gpu_consumers.engines.torch import linear
from gpu_consumers.engines.torch.linear import Linear, can_pack


@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("biased", [True, False])
@torch.inference_mode()
def test_packed_or_not_it_is_a_linear_layer(
    monkeypatch: pytest.MonkeyPatch, packs: bool, dtype: torch.dtype, biased: bool
) -> None:
    if not packs:
        monkeypatch.setattr(linear, "can_pack", lambda dtype, device_type: False)
    torch.manual_seed(0)
    weight, bias = torch.randn(24, 16, dtype=dtype), torch.randn(24, dtype=dtype) if biased else None
    x, residual = torch.randn(5, 16, dtype=dtype), torch.randn(5, 24, dtype=dtype)
    ours, tolerance = Linear(weight, bias), {"rtol": 2e-2, "atol": 5e-2} if dtype != torch.float32 else {}
    assert ours.packed == (packs and can_pack(dtype, "cpu"))
    torch.testing.assert_close(ours(x), F.linear(x, weight, bias), **tolerance)  # type: ignore[arg-type]
    expected = residual + F.linear(x, weight, bias)
    torch.testing.assert_close(ours.added_to(residual, x), expected, **tolerance)  # type: ignore[arg-type]


def test_a_machine_without_the_private_ops_does_not_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(weight: torch.Tensor) -> torch.Tensor:
        raise AttributeError("no such op")

    monkeypatch.setattr(linear, "_pack", gone)
    assert not can_pack.__wrapped__(torch.float32, "cpu")


def test_nothing_is_packed_off_the_cpu() -> None:
    assert not can_pack(torch.bfloat16, "cuda")
