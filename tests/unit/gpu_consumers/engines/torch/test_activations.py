from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from gpu_consumers.engines.torch.activations import between_products, named
from gpu_consumers.errors import UnsupportedModelError

NAMES = ("silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu")
X = torch.linspace(-6, 6, 64).view(4, 16)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_what_it_means_to_transformers(name: str) -> None:
    plain, gated = (between_products(named(name), gated=gated) for gated in (False, True))
    expected = ACT2FN[name](X)
    torch.testing.assert_close(plain(X), expected)
    torch.testing.assert_close(gated(torch.cat((X, X.flip(0)), -1)), expected * X.flip(0))


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnsupportedModelError, match=f"'snake'; supported are {', '.join(NAMES)}"):
        named("snake")
