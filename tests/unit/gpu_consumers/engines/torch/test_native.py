"""The compiled kernels against torch's own operations, and what happens where they can't be made."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_consumers.engines.torch.blocks import BLOCK_TOKENS
from gpu_consumers.engines.torch.native import Kernels, kernels_for
from gpu_consumers.engines.torch.native.build import HEADERS, SOURCES, BuildError, library
from gpu_consumers.engines.torch.rotary import RotaryTable

DTYPES = (torch.float32, torch.bfloat16)
CLOSE: dict[torch.dtype, Any] = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-6},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-2},
}


@pytest.fixture(params=DTYPES, ids=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


@pytest.fixture
def kernels(dtype: torch.dtype, kernels_dir: Path) -> Kernels:
    found = kernels_for(dtype, "cpu", kernels_dir)
    assert found is not None
    return found


def attended(queries: Tensor, keys: Tensor, values: Tensor, softcap: float | None = None) -> Tensor:
    """queries [query heads, dim] over keys and values [tokens, key-value heads, dim], written out in float."""
    group = queries.shape[0] // keys.shape[1]
    keys, values = (t.float().repeat_interleave(group, 1).transpose(0, 1) for t in (keys, values))
    scores = queries.float().unsqueeze(1) @ keys.transpose(1, 2)
    if softcap is not None:
        scores = softcap * (scores / softcap).tanh()
    return (scores.softmax(-1) @ values).flatten()


# Heads of whole registers and others, and more queries of one key than are attended to at once.
@pytest.mark.parametrize(
    ("query_heads", "key_heads", "dim"), [(9, 3, 64), (8, 8, 80), (16, 2, 128), (4, 2, 24), (20, 2, 64), (71, 1, 32)]
)
def test_decodes_attend_to_their_own_sequence_alone(
    kernels: Kernels, dtype: torch.dtype, query_heads: int, key_heads: int, dim: int
) -> None:
    torch.manual_seed(5)
    lengths = [1, 63, 64, 65, 300]
    columns = -(-max(lengths) // BLOCK_TOKENS)
    blocks = torch.randperm(len(lengths) * columns).view(len(lengths), columns).int()
    memory = torch.randn(2, blocks.numel(), key_heads, BLOCK_TOKENS, dim).to(dtype)
    qkv = (torch.randn(len(lengths), query_heads + 2 * key_heads, dim) / dim**0.5).to(dtype)
    for row, length in enumerate(lengths):  # what lies behind an end is somebody else's, and may be anything
        newest = int(blocks[row, (length - 1) // BLOCK_TOKENS])
        memory[:, newest, :, 1 + (length - 1) % BLOCK_TOKENS :] = float("nan")
    ours = kernels.attend(qkv[:, :query_heads], memory[0], memory[1], blocks, torch.tensor(lengths, dtype=torch.int32))
    for row, length in enumerate(lengths):
        keys, values = (m[blocks[row].long()].transpose(1, 2).flatten(0, 1)[:length] for m in memory)
        expected = attended(qkv[row, :query_heads], keys, values)
        torch.testing.assert_close(ours[row].float(), expected, **CLOSE[dtype])


def test_a_sequence_of_nan_spoils_itself_alone(kernels: Kernels, dtype: torch.dtype) -> None:
    memory = torch.randn(2, 2, 1, BLOCK_TOKENS, 64).to(dtype)
    memory[0, 1, 0, 3] = float("nan")
    queries = torch.randn(2, 2, 64).to(dtype)
    blocks, lengths = torch.tensor([[0], [1]], dtype=torch.int32), torch.tensor([9, 9], dtype=torch.int32)
    ours = kernels.attend(queries, memory[0], memory[1], blocks, lengths)
    assert ours[0].isfinite().all()
    assert ours[1].isnan().all()


def chunk_attended(
    queries: Tensor, keys: Tensor, values: Tensor, start: int, window: int | None, softcap: float | None
) -> Tensor:
    """queries [tokens, query heads, dim], the first of which stands at `start`, each over the tokens that it sees."""
    rows = []
    for token in range(queries.shape[0]):
        end = start + token + 1
        seen = slice(max(0, end - (window or end)), end)
        rows.append(attended(queries[token], keys[seen], values[seen], softcap))
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("query_heads", "key_heads", "dim", "block_tokens", "window", "softcap"),
    [
        (9, 3, 64, BLOCK_TOKENS, None, None),
        (4, 4, 80, BLOCK_TOKENS, None, 2.0),
        (16, 2, 128, BLOCK_TOKENS, 100, None),
        (4, 2, 24, BLOCK_TOKENS, 1, None),
        (71, 1, 32, 16, 64, 0.5),
        (130, 2, 16, 96, 65, None),
    ],
)
def test_chunks_attend_to_their_own_sequence_up_to_each_token(
    kernels: Kernels,
    dtype: torch.dtype,
    query_heads: int,
    key_heads: int,
    dim: int,
    block_tokens: int,
    window: int | None,
    softcap: float | None,
) -> None:
    torch.manual_seed(10)
    chunks = [(2, 1, 0), (3, 70, 0), (73, 65, 130), (138, 1, 63), (139, 20, 44)]  # two decodes lie before them
    columns = -(-200 // block_tokens)
    blocks = torch.randperm(len(chunks) * columns).view(len(chunks), columns).int()
    memory = torch.randn(2, blocks.numel(), key_heads, block_tokens, dim).to(dtype)
    for row, (_, tokens, start) in enumerate(chunks):  # what lies behind an end is somebody else's, and may be anything
        for place in range(start + tokens, columns * block_tokens):
            memory[:, blocks[row, place // block_tokens], :, place % block_tokens] = float("nan")
    qkv = (torch.randn(160, query_heads + 2 * key_heads, dim) / dim**0.5).to(dtype)
    out = torch.full((160, query_heads * dim), 7.0, dtype=dtype)
    kernels.attend_chunks(
        qkv[:, :query_heads], memory[0], memory[1], blocks, torch.tensor(chunks), out, window=window, softcap=softcap
    )
    for row, (begin, tokens, start) in enumerate(chunks):
        keys, values = (m[blocks[row].long()].transpose(1, 2).flatten(0, 1) for m in memory)
        expected = chunk_attended(qkv[begin : begin + tokens, :query_heads], keys, values, start, window, softcap)
        torch.testing.assert_close(out[begin : begin + tokens].float(), expected, **CLOSE[dtype])
    assert (out[:2] == 7.0).all(), "rows of the decodes were written to"
    assert (out[159:] == 7.0).all()


def test_scores_that_grow_from_block_to_block_are_weighed_together(kernels: Kernels, dtype: torch.dtype) -> None:
    torch.manual_seed(11)
    scale = torch.linspace(-5, 5, 3 * BLOCK_TOKENS).view(3, 1, BLOCK_TOKENS, 1)  # each block outweighs the last
    memory = torch.stack((scale.expand(3, 1, BLOCK_TOKENS, 32), torch.randn(3, 1, BLOCK_TOKENS, 32))).to(dtype)
    queries = torch.full((3 * BLOCK_TOKENS, 1, 32), 1 / 16).to(dtype)
    blocks, chunks = torch.tensor([[0, 1, 2]], dtype=torch.int32), torch.tensor([[0, 3 * BLOCK_TOKENS, 0]])
    out = torch.empty(3 * BLOCK_TOKENS, 32, dtype=dtype)
    kernels.attend_chunks(queries, memory[0], memory[1], blocks, chunks, out)
    keys, values = (m.transpose(1, 2).flatten(0, 1) for m in memory)
    expected = chunk_attended(queries, keys, values, 0, None, None)
    torch.testing.assert_close(out.float(), expected, **CLOSE[dtype])


def test_a_chunk_of_nan_spoils_itself_alone(kernels: Kernels, dtype: torch.dtype) -> None:
    memory = torch.randn(2, 2, 1, BLOCK_TOKENS, 64).to(dtype)
    memory[0, 1, 0, 3] = float("nan")
    blocks, chunks = torch.tensor([[0], [1]], dtype=torch.int32), torch.tensor([[0, 9, 0], [9, 9, 0]])
    out = torch.empty(18, 128, dtype=dtype)
    kernels.attend_chunks(torch.randn(18, 2, 64).to(dtype), memory[0], memory[1], blocks, chunks, out)
    assert out[:9].isfinite().all()
    assert out[12:].isnan().all()


@pytest.mark.parametrize(("query_heads", "key_heads", "dim"), [(9, 3, 64), (4, 2, 24)])
def test_queries_and_keys_are_rotated_and_keys_and_values_stored(
    kernels: Kernels, dtype: torch.dtype, query_heads: int, key_heads: int, dim: int
) -> None:
    torch.manual_seed(6)
    angles = torch.outer(torch.arange(500.0), 10000 ** (-torch.arange(0, dim, 2) / dim)).repeat(1, 2)
    table = RotaryTable(angles.cos(), angles.sin(), query_heads=query_heads, key_heads=key_heads)
    places = torch.tensor([3, 64, 130, 191])
    rotation = table.at(torch.tensor([7, 0, 499, 63]), dtype)
    memory = torch.zeros(2, 4, key_heads, BLOCK_TOKENS, dim, dtype=dtype)
    qkv = torch.randn(4, query_heads + 2 * key_heads, dim).to(dtype)
    expected = qkv.clone()
    rotation.apply(expected[:, : query_heads + key_heads])

    kernels.rotate_and_store(qkv, rotation.cos, rotation.sin, places, memory[0], memory[1], query_heads)

    torch.testing.assert_close(qkv, expected, **CLOSE[dtype])
    by_token = memory.transpose(2, 3).flatten(1, 2)
    assert torch.equal(by_token[0, places], qkv[:, query_heads : query_heads + key_heads])
    assert torch.equal(by_token[1, places], qkv[:, query_heads + key_heads :])
    assert by_token.count_nonzero() == 2 * 4 * key_heads * dim, "something else was written to"


@pytest.mark.parametrize(("window", "softcap"), [(1, None), (64, None), (100, None), (None, 2.0), (7, 0.5)])
def test_decodes_attend_to_a_window_and_scores_are_capped(
    kernels: Kernels, dtype: torch.dtype, window: int | None, softcap: float | None
) -> None:
    torch.manual_seed(8)
    lengths = [1, 64, 101, 300]
    blocks = torch.arange(len(lengths) * 5, dtype=torch.int32).view(len(lengths), 5)
    memory = torch.randn(2, blocks.numel(), 2, BLOCK_TOKENS, 64).to(dtype)
    queries = (torch.randn(len(lengths), 6, 64) / 8).to(dtype)
    for row, length in enumerate(lengths):  # what is left of the window may be anything
        unseen = length - (window or length)
        for block in range(5):
            memory[:, blocks[row, block], :, : max(0, min(unseen - block * BLOCK_TOKENS, BLOCK_TOKENS))] = 1e6
    ours = kernels.attend(
        queries, memory[0], memory[1], blocks, torch.tensor(lengths, dtype=torch.int32), window=window, softcap=softcap
    )
    for row, length in enumerate(lengths):
        keys, values = (m[blocks[row].long()].transpose(1, 2).flatten(0, 1)[:length] for m in memory)
        expected = attended(queries[row], keys[-(window or length) :], values[-(window or length) :], softcap)
        torch.testing.assert_close(ours[row].float(), expected, **CLOSE[dtype])


@pytest.mark.parametrize("tokens", [1, 40])
def test_heads_of_queries_and_keys_are_normed_and_values_left_alone(
    kernels: Kernels, dtype: torch.dtype, tokens: int
) -> None:
    torch.manual_seed(9)
    qkv, weight = (torch.randn(tokens, 8, 64) * 3).to(dtype), torch.randn(6, 64)
    normed = F.rms_norm(qkv[:, :6].float(), (64,), None, 1e-6) * weight
    values = qkv[:, 6:].clone()
    kernels.norm_heads(qkv, weight, 1e-6)
    torch.testing.assert_close(qkv[:, :6].float(), normed, **CLOSE[dtype])
    assert torch.equal(qkv[:, 6:], values)


@pytest.mark.parametrize("rows", [1, 16, 300])
def test_the_norm_and_the_gate_are_torchs(kernels: Kernels, dtype: torch.dtype, rows: int) -> None:
    torch.manual_seed(7)
    x, weight = (torch.randn(rows, 576) * 3).to(dtype), torch.randn(576).to(dtype)
    normed = F.rms_norm(x.float(), (576,), weight.float(), 1e-5)
    torch.testing.assert_close(kernels.rms_norm(x, weight.float(), 1e-5).float(), normed, **CLOSE[dtype])
    gate_up = (torch.randn(rows, 2 * 100) * 5).to(dtype)
    gate_up[0, :4] = torch.tensor([0.0, -1e4, 1e4, float("inf")])
    gate, up = gate_up.float().chunk(2, -1)
    torch.testing.assert_close(kernels.gated_silu(gate_up).float(), F.silu(gate) * up, **CLOSE[dtype])
    gate_up[0, 0] = float("nan")
    assert kernels.gated_silu(gate_up)[0, 0].isnan()


def test_bfloat16_is_rounded_as_torch_rounds_it(kernels_dir: Path) -> None:
    kernels = kernels_for(torch.bfloat16, "cpu", kernels_dir)
    assert kernels is not None
    up = torch.randn(1, 4096).bfloat16()
    gate = torch.full((1, 4096), 40.0).bfloat16()  # silu(40) is 40
    assert torch.equal(kernels.gated_silu(torch.cat((gate, up), -1)), (40.0 * up.float()).bfloat16())


def test_other_devices_and_dtypes_have_no_kernels(tmp_path: Path) -> None:
    assert kernels_for(torch.float32, "cuda", tmp_path) is None
    assert kernels_for(torch.float16, "cpu", tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_library_is_made_once(kernels_dir: Path) -> None:
    made = library(kernels_dir)
    before = made.stat().st_mtime_ns
    assert library(kernels_dir, compilers=("no-such-compiler",)) == made
    assert made.stat().st_mtime_ns == before


def compiler(folder: Path, script: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_nothing_is_called_that_gcc_knows_from_version_12_on_only() -> None:
    assert not [source.name for source in (*SOURCES, *HEADERS) if "__builtin_shufflevector(" in source.read_text()]


def test_why_a_library_can_not_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="none of no-such-compiler is installed"):
        library(tmp_path, compilers=("no-such-compiler",))
    with pytest.raises(BuildError, match="refused: unknown option"):
        library(tmp_path / "made", compilers=(compiler(tmp_path, "echo unknown option >&2; exit 1"),))
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="can't be written to"):
        library(tmp_path / "file" / "below", compilers=(compiler(tmp_path, "true"),))


def test_without_a_compiler_torch_does_the_work_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with caplog.at_level(logging.WARNING, "headrace.worker.native"):
        assert kernels_for(torch.float32, "cpu", tmp_path) is None
    assert "none of g++, c++ is installed" in caplog.text


def test_a_broken_library_is_no_reason_to_stop(
    tmp_path: Path, kernels_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / library(kernels_dir).name).write_bytes(b"not a library")
    with caplog.at_level(logging.WARNING, "headrace.worker.native"):
        assert kernels_for(torch.float32, "cpu", tmp_path) is None
    assert "no compiled kernels" in caplog.text
