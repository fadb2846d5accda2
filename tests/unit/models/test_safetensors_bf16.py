import errno
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from models.safetensors_bf16 import bfloat16_bits, write_safetensors_bf16

HALF_WAY = [1.00390625, 1.01171875, -1.00390625, 3.0e38, 1e-40, 0.0, -0.0, float("inf")]


def test_weights_are_rounded_as_torch_rounds_them() -> None:
    random = np.random.default_rng(1).normal(0, 1, 10_000).astype(np.float32)
    weights = np.concatenate([np.array(HALF_WAY, dtype=np.float32), random])

    ours = torch.from_numpy(bfloat16_bits(weights).view(np.int16))

    assert torch.equal(ours, torch.from_numpy(weights).to(torch.bfloat16).view(torch.int16))


def test_the_library_reads_what_was_written(tmp_path: Path) -> None:
    weights = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b.weight": np.ones(5, dtype=np.float32),
        "c": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    }
    path = tmp_path / "model.safetensors"

    write_safetensors_bf16(path, {name: weight.shape for name, weight in weights.items()}, weights.items())

    loaded = load_file(path)
    assert loaded.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(loaded[name], torch.tensor(weight.copy(), dtype=torch.bfloat16))


@pytest.mark.parametrize("shapes", [{"a": (3,)}, {"b": (2,)}, {"a": (2,), "b": (1,)}, {}])
def test_weights_that_are_not_those_announced_are_refused(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"expected weight|zip\(\)"):
        write_safetensors_bf16(tmp_path / "w", shapes, [("a", np.zeros(2, dtype=np.float32))])


def test_a_full_disk_is_an_error_and_not_a_short_file() -> None:
    weight = np.zeros(100_000, dtype=np.float32)

    with pytest.raises(OSError, match="No space left") as caught:
        write_safetensors_bf16(Path("/dev/full"), {"a": weight.shape}, [("a", weight)])
    assert caught.value.errno == errno.ENOSPC
