"""What `torch.nn.attention.varlen.varlen_attn` promises, in plain operations: it runs on CUDA alone, this anywhere."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: None, max_q: int, max_k: int, *,
    scale: float, window_size: tuple[int, int], enable_gqa: bool, seqused_k: Tensor, block_table: Tensor,
) -> Any:  # fmt: skip
    """Paged and causal: [tokens, query heads, dim]; pages are [pages, page tokens, key heads, dim].

    Queries stand at the end of their sequence: a chunk sees all before it, and of itself what is not behind.
    """
    assert cu_seq_k is None
    assert enable_gqa
    assert key.shape[1] % 256 == 0, "the kernel takes pages of 256 tokens, or a multiple"
    assert key.is_contiguous(), "pages lie tokens first"
    assert int(seqused_k.max()) <= max_k
    assert all(t.dtype == torch.int32 for t in (cu_seq_q, seqused_k, block_table))
    out = torch.empty_like(query)
    for number, length in enumerate(seqused_k.tolist()):
        begin, end = cu_seq_q[number : number + 2].tolist()
        assert end - begin <= max_q
        pages = block_table[number].long()
        keys, values = (pool[pages].flatten(0, 1)[:length] for pool in (key, value))
        at = torch.arange(length - (end - begin), length).unsqueeze(-1)
        seen = torch.arange(length) <= at
        if window_size[0] >= 0:
            seen &= torch.arange(length) >= at - window_size[0]
        group = query.shape[1] // keys.shape[1]
        out[begin:end] = F.scaled_dot_product_attention(
            query[begin:end].transpose(0, 1),
            keys.transpose(0, 1).repeat_interleave(group, 0),
            values.transpose(0, 1).repeat_interleave(group, 0),
            attn_mask=seen,
            scale=scale,
        ).transpose(0, 1)
    return out
