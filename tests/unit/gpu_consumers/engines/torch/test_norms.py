"""Without kernels; `test_native` holds those against the same."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from gpu_consumers.engines.torch.norms import head_norm, layer_norm, offset_weight, rms_norm

ROWS = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
WEIGHT = torch.linspace(-0.3, 0.3, 32)


def test_rows_of_half_precision_keep_it_and_a_weight_in_fp32_is_not_rounded() -> None:
    weight = offset_weight(WEIGHT.bfloat16())
    assert weight.dtype == torch.float32
    ours = rms_norm(weight, 1e-6)(ROWS.bfloat16())
    expected = F.rms_norm(ROWS.bfloat16().float(), (32,), 1 + WEIGHT.bfloat16().float(), 1e-6).bfloat16()
    assert torch.equal(ours, expected)
    assert rms_norm(WEIGHT.bfloat16(), 1e-6)(ROWS.bfloat16()).dtype == torch.bfloat16


def test_a_layer_norm_has_a_bias() -> None:
    bias = torch.arange(32.0)
    torch.testing.assert_close(layer_norm(WEIGHT, bias, 1e-5)(ROWS), F.layer_norm(ROWS, (32,), WEIGHT, bias, 1e-5))


def test_each_head_is_normed_by_itself_and_values_stay() -> None:
    qkv = ROWS.view(5, 4, 8).clone()
    weight = torch.stack((WEIGHT[:8], WEIGHT[:8], WEIGHT[8:16]))
    head_norm(weight, 1e-6)(qkv)
    torch.testing.assert_close(qkv[:, 1], F.rms_norm(ROWS.view(5, 4, 8)[:, 1], (8,), WEIGHT[:8], 1e-6))
    torch.testing.assert_close(qkv[:, 2], F.rms_norm(ROWS.view(5, 4, 8)[:, 2], (8,), WEIGHT[8:16], 1e-6))
    assert torch.equal(qkv[:, 3], ROWS.view(5, 4, 8)[:, 3])
