"""Weights in int8: against the same products in float, by the compiled kernel and by torch's operations."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from gpu_consumers.engines.torch import int8, load_torch_engine
from gpu_consumers.engines.torch.int8 import Int8Linear, WeightOnlyLinear, packed, product_maker, quantized
from gpu_consumers.engines.torch.linear import Linear
from gpu_consumers.engines.torch.native import Kernels, kernels_for
from gpu_consumers.errors import EngineConfigurationError
from tests.batching import Request, run_batch


def native(dtype: torch.dtype, kernels_dir: Path) -> Kernels:
    """The compiled kernels, where they have this product."""
    kernels = kernels_for(dtype, "cpu", kernels_dir)
    assert kernels is not None
    if not kernels.has_int8:
        pytest.skip("this processor has no AVX512-VNNI")
    return kernels


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected).norm() / expected.norm())


def test_weights_are_rounded_to_a_step_of_their_own_output() -> None:
    weight = torch.tensor([[1.0, -127.0, 0.4], [0.0, 0.0, 0.0], [0.5, 0.25, -0.1]])
    held = quantized(weight)
    assert held.values.dtype == torch.int8
    assert held.values.tolist() == [[1, -127, 0], [0, 0, 0], [127, 64, -25]]
    assert held.scales.tolist() == pytest.approx([1.0, 0.0, 0.5 / 127])
    assert float((held.dequantized(slice(2, 3), torch.float32) - weight[2:]).abs().max()) <= 0.25 / 127 + 1e-7


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_left_as_they_were(dtype: torch.dtype) -> None:
    weight = torch.randn(7, 33).to(dtype)
    before = weight.clone()
    assert torch.equal(quantized(weight).values, quantized(weight.float()).values)
    assert torch.equal(weight, before)


@pytest.mark.parametrize(("outputs", "inputs"), [(32, 4), (33, 64), (7, 5), (96, 131), (40, 576)])
@pytest.mark.parametrize("rows", [1, 2, 5, 12, 13, 31, 64])
@torch.inference_mode()
def test_the_kernel_multiplies_whole_numbers_exactly(kernels_dir: Path, outputs: int, inputs: int, rows: int) -> None:
    kernels = native(torch.float32, kernels_dir)
    torch.manual_seed(outputs + rows)
    weight = torch.randint(-127, 128, (outputs, inputs)).float()
    weight[:, 0] = 127.0  # so that a step is 1
    x = torch.randint(-127, 128, (rows, inputs)).float()
    x[:, 0] = 127.0
    bias, residual = torch.randn(outputs), torch.randn(rows, outputs)
    ours, exact = Int8Linear(quantized(weight), bias, kernels), (x.double() @ weight.double().t()).float()
    torch.testing.assert_close(ours(x), exact + bias)
    torch.testing.assert_close(ours.added_to(residual, x), residual + exact + bias)
    torch.testing.assert_close(Int8Linear(quantized(weight), None, kernels)(x), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_numbers_far_beyond_the_others_do_not_coarsen_them(kernels_dir: Path, dtype: torch.dtype) -> None:
    kernels = native(dtype, kernels_dir)
    torch.manual_seed(3)
    weight, x = torch.randn(64, 576).to(dtype), torch.randn(9, 576)
    x[:, [5, 77, 78, 575]] *= 300.0
    x = x.to(dtype)
    held = quantized(weight)
    exact = x.float() @ held.dequantized(slice(None), torch.float32).t()
    without = x.float().clone()
    without[:, [5, 77, 78, 575]] = 0.0
    rest = without @ held.dequantized(slice(None), torch.float32).t()
    # Against what the others make: with one step for all of them it would be 0.8.
    error = float((Int8Linear(held, None, kernels)(x).float() - exact).norm() / rest.norm())
    assert error < 0.25


@torch.inference_mode()
def test_a_row_is_the_same_to_the_bit_in_any_company(kernels_dir: Path) -> None:
    kernels = native(torch.bfloat16, kernels_dir)
    torch.manual_seed(4)
    ours = Int8Linear(quantized(torch.randn(70, 96)), None, kernels)
    x = torch.randn(40, 96).bfloat16()
    together = ours(x)
    for row in range(40):
        assert torch.equal(ours(x[row : row + 1])[0], together[row])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@torch.inference_mode()
def test_a_row_that_is_not_finite_spoils_itself_alone(kernels_dir: Path, bad: float) -> None:
    kernels = native(torch.bfloat16, kernels_dir)
    torch.manual_seed(5)
    ours = Int8Linear(quantized(torch.randn(33, 40)), None, kernels)
    x = torch.randn(5, 40).bfloat16()
    expected = ours(x)
    x[2, 7] = bad
    found = ours(x)
    assert found[2].isnan().all()
    others = [0, 1, 3, 4]
    assert torch.equal(found[others], expected[others])


@torch.inference_mode()
def test_rows_of_zeros_and_of_the_largest_numbers_are_numbers(kernels_dir: Path) -> None:
    kernels = native(torch.float32, kernels_dir)
    ours = Int8Linear(quantized(torch.eye(16)), torch.ones(16), kernels)
    x = torch.zeros(4, 16)
    x[1, 3], x[2, 3], x[3] = 1e-38, 3e38, 2e38
    assert torch.equal(ours(x)[:2], torch.ones(2, 16))
    torch.testing.assert_close(ours(x)[2:], x[2:] + 1)


@torch.inference_mode()
def test_random_products_are_as_close_as_eight_bits_are(kernels_dir: Path) -> None:
    torch.manual_seed(6)
    weight, bias = torch.randn(200, 576) / 24, torch.randn(200)
    x, residual = torch.randn(33, 576), torch.randn(33, 200)
    exact = F.linear(x, weight, bias)
    for dtype in (torch.float32, torch.bfloat16):
        for kernels in (native(dtype, kernels_dir), None):
            make = product_maker("int8", kernels)
            ours = make(weight.to(dtype), bias.to(dtype))
            assert isinstance(ours, WeightOnlyLinear if kernels is None else Int8Linear)
            assert relative_error(ours(x.to(dtype)), exact) < 0.015
            assert relative_error(ours.added_to(residual.to(dtype), x.to(dtype)), residual + exact) < 0.015


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, int8._FEW_ROWS, int8._FEW_ROWS + 1])
@pytest.mark.parametrize("biased", [True, False])
@torch.inference_mode()
def test_without_the_kernel_the_weights_alone_are_rounded(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, rows: int, biased: bool
) -> None:
    monkeypatch.setattr(int8, "_PIECE_NUMBERS", 16 * 10)  # in three pieces
    torch.manual_seed(7)
    weight, bias = torch.randn(24, 16).to(dtype), torch.randn(24).to(dtype) if biased else None
    x, residual = (20 * torch.randn(rows, 16)).to(dtype), torch.randn(rows, 24).to(dtype)
    held = quantized(weight)
    wide = None if bias is None else bias.float()
    exact = F.linear(x.float(), held.dequantized(slice(None), torch.float32), wide)
    ours, close = WeightOnlyLinear(held, bias), 1e-6 if dtype == torch.float32 else 1e-2
    assert relative_error(ours(x), exact) < close
    assert relative_error(ours.added_to(residual, x), residual.float() + exact) < close
    assert ours(x).dtype == dtype


def test_packed_weights_are_panels_of_outputs_with_inputs_by_fours() -> None:
    weight = quantized(torch.randn(33, 6))
    panels, scales = packed(weight)
    assert panels.shape == (2, 2, 32, 4)
    assert panels.dtype == torch.uint8
    assert int(panels[1, 1, 0, 1]) - 128 == int(weight.values[32, 5])
    assert int(panels[0, 1, 7, 2]) == 128, "zero behind the last input"
    assert bool((panels[1, :, 1:] == 128).all()), "zero behind the last output"
    assert torch.equal(scales, F.pad(weight.scales, (0, 31)))


def test_where_int8_saves_no_time_a_warning_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headrace.worker.int8"):
        assert product_maker("none", None) is Linear
        assert caplog.text == ""
        product_maker("int8", None)
    assert "AVX512-VNNI" in caplog.text


def answers(directory: Path, output_tokens: int, **options: Any) -> list[list[int]]:
    engine = load_torch_engine(directory, slots=4, max_context_tokens=128, **options)
    prompts = [tuple((7 * i + 3 * j) % 118 + 2 for j in range(20 + i)) for i in range(8)]
    return [request.output for request in run_batch(engine, [Request(p, output_tokens) for p in prompts])]


@pytest.mark.parametrize("variant", ["biased", "gpt2 with a head of its own"])
def test_an_engine_in_int8_answers_as_one_whose_weights_were_rounded(
    model_directory: Callable[[str], Path], tmp_path: Path, variant: str
) -> None:
    from_pretrained: Any = AutoModelForCausalLM.from_pretrained
    rounded = from_pretrained(model_directory(variant), dtype=torch.float32)
    for module in rounded.modules():
        if isinstance(module, torch.nn.Linear | Conv1D):
            weight = module.weight.detach()
            weight = weight.t() if isinstance(module, Conv1D) else weight
            weight.copy_(quantized(weight).dequantized(slice(None), torch.float32))
    rounded.save_pretrained(tmp_path)
    ours = answers(model_directory(variant), 12, dtype="float32", quantization="int8")
    assert ours == answers(tmp_path, 12, dtype="float32")
    assert ours != answers(model_directory(variant), 12, dtype="float32"), "nothing was rounded"


@pytest.mark.parametrize("variant", ["grouped", "tied", "gemma3", "gpt2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_most_tokens_are_those_of_the_model_itself(
    model_directory: Callable[[str], Path], kernels_dir: Path, variant: str, dtype: str
) -> None:
    """The first of each answer: in random models the likeliest two are often near, and what follows differs then."""
    theirs = answers(model_directory(variant), 1, dtype="float32")
    ours = answers(model_directory(variant), 1, dtype=dtype, quantization="int8", kernels_dir=kernels_dir)
    assert sum(a == b for a, b in zip(ours, theirs, strict=True)) >= 6


def test_a_quantization_that_is_not_there_is_refused(model_directory: Callable[[str], Path]) -> None:
    with pytest.raises(EngineConfigurationError, match="quantization is 'int4'; choose one of none, int8"):
        load_torch_engine(model_directory("grouped"), quantization="int4")


@pytest.mark.gpu
@torch.inference_mode()
def test_on_cuda_the_weights_are_dequantized_in_the_product() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    torch.manual_seed(8)
    weight, x = torch.randn(70, 96, device="cuda").bfloat16(), torch.randn(9, 96, device="cuda").bfloat16()
    ours = product_maker("int8", None)(weight, None)
    assert relative_error(ours(x), x.float() @ weight.float().t()) < 0.015
