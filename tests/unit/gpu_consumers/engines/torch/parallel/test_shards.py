import pytest
import torch

from gpu_consumers.engines.torch.parallel.shards import Shard, check_divisible
from gpu_consumers.engines.torch.projections import Projection, fused_shape
from gpu_consumers.errors import UnsupportedModelError

QKV = fused_shape(3, [("query", 8), ("key", 4), ("value", 4)], ["q", "k", "v"])
DOWN = fused_shape(6, [("down", 3)], ["down"])


def test_the_whole_is_one_shard() -> None:
    weight, bias = torch.rand(16, 3), torch.rand(16)
    assert Shard().cut(Projection.QKV, QKV, weight, bias) == (weight, bias)


def test_a_fused_projection_is_cut_part_by_part() -> None:
    weight = torch.arange(16.0).unsqueeze(-1).expand(16, 3)
    cut = [Shard(rank, 2).cut(Projection.QKV, QKV, weight, weight[:, 0]) for rank in range(2)]
    assert [w[:, 0].tolist() for w, _ in cut] == [[0, 1, 2, 3, 8, 9, 12, 13], [4, 5, 6, 7, 10, 11, 14, 15]]
    assert all(bias is not None and bias.tolist() == w[:, 0].tolist() for w, bias in cut)


def test_parts_that_are_cut_by_their_inputs_add_up_with_one_bias() -> None:
    weight, bias, x = torch.rand(3, 6), torch.rand(3), torch.rand(5, 6)
    whole = x @ weight.T + bias
    parts = torch.zeros_like(whole)
    for rank in range(3):
        shard = Shard(rank, 3)
        part, own_bias = shard.cut(Projection.DOWN, DOWN, weight, bias)
        parts += x[:, shard.span(6)] @ part.T + (0 if own_bias is None else own_bias)
    torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize(("count", "size"), [(10, 3), (7, 4), (2, 3), (5, 1)])
def test_spans_cover_all_in_order(count: int, size: int) -> None:
    spans = [range(count)[Shard(rank, size).span(count)] for rank in range(size)]
    assert [n for span in spans for n in span] == list(range(count))


def test_what_cannot_be_shared_evenly_is_refused_by_name() -> None:
    check_divisible(2, attention_heads=4)
    with pytest.raises(UnsupportedModelError, match="3 key value heads, which 2 ranks"):
        check_divisible(2, attention_heads=4, key_value_heads=3)
