"""HSTU: gated pointwise attention over the user history."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.features.schema import Schema
from recsys_cli.models.configs.sequence import HSTUConfig
from recsys_cli.models.layers import Dropout
from recsys_cli.models.sequence.histories import Group, Jagged
from recsys_cli.models.sequence.model import SequenceModel
from recsys_cli.models.sequence.networks import Encoder, heads, init_small

BUCKETS, _BASE = 128, 1.35
"""Logarithmic buckets of time: 128 of a third more each hold all times from 1 to 10^16 units, whatever the unit is."""
_BLOCK, _QUERIES = {"cpu": 1 << 18, "cuda": 1 << 26}, 64
"""Weights per block, and the fewest queries of a long sequence in one."""


def pointwise_attention(
    inputs: tuple[Tensor, Tensor, Tensor], by_distance: Tensor, by_time: Tensor | None, times: Tensor | None
) -> Tensor:
    """Return A v with A = silu(q kᵀ + bias) / N over the items so far, N of them; shape (S, H, L, D).

    Weights are computed in blocks, forward and again backward, so memory follows the items and not their pairs.

    Args:
        inputs: q, k and v of S sequences, shape (S, H, L, D) each.
        by_distance: Bias of two items by their distance, L and more of them.
        by_time: Bias by the bucket of their time apart, shape (BUCKETS,); None for no such bias.
        times: Times of the items, shape (S, L); None for items a unit apart.
    """
    attended: Tensor = _PointwiseAttention.apply(*inputs, by_distance, by_time, times)
    return attended


def time_buckets(later: Tensor, earlier: Tensor) -> Tensor:
    """Return the bucket of the time between items, shape (S, Q, K), from times of shape (S, Q) and (S, K)."""
    apart = (later.unsqueeze(2) - earlier.unsqueeze(1)).clamp_(min=1)
    return (apart.float().log_() * (1 / math.log(_BASE))).long().clamp_(max=BUCKETS - 1)


class _Block(NamedTuple):
    """Some queries of some sequences with all keys up to the last of them.

    Attributes:
        queries: Place of the queries in all tensors.
        keys: Place of the keys.
        distances: From each query to each key, 0 for later keys; shape (Q, K).
        buckets: Buckets of the times apart, shape (S, Q, K); None without times.
        start: Position of the first query.
    """

    queries: tuple[slice, slice, slice]
    keys: tuple[slice, slice, slice]
    distances: Tensor
    buckets: Tensor | None
    start: int

    def weights(self, query: Tensor, key: Tensor, by_distance: Tensor, by_time: Tensor | None) -> Tensor:
        """Return q kᵀ + bias, shape (S, H, Q, K), float32."""
        scores = (query[self.queries] @ key[self.keys].mT).float()
        scores += by_distance[self.distances]
        if by_time is not None and self.buckets is not None:
            scores += F.embedding(self.buckets, by_time.unsqueeze(1)).squeeze(3).unsqueeze(1)
        return scores

    def forget_later(self, values: Tensor) -> Tensor:
        """Set the values of later keys to 0, in place."""
        values[..., self.start :].tril_()
        return values


def _blocks(times: Tensor | None, shape: torch.Size, device: torch.device) -> Iterator[_Block]:
    """Yield the blocks of sequences, shape (S, H, L, D)."""
    size, num_heads, length, _ = shape
    step = max(_QUERIES, _BLOCK[device.type] // max(1, num_heads * length * size))
    together = max(1, _BLOCK[device.type] // (num_heads * min(step, length) * length))
    everything = slice(None)
    for start in range(0, length, step):
        stop = min(start + step, length)
        places = torch.arange(stop, device=device)
        distances = (places[start:].unsqueeze(1) - places).clamp_(min=0)
        for first in range(0, size, together):
            rows = slice(first, first + together)
            buckets = None if times is None else time_buckets(times[rows, start:stop], times[rows, :stop])
            queries, keys = (rows, everything, slice(start, stop)), (rows, everything, slice(0, stop))
            yield _Block(queries, keys, distances, buckets, start)


class _PointwiseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        by_distance: Tensor,
        by_time: Tensor | None,
        times: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, by_distance, by_time, times)
        attended = torch.empty_like(value)
        for block in _blocks(times, query.shape, query.device):
            weights = block.forget_later(F.silu(block.weights(query, key, by_distance, by_time), inplace=True))
            attended[block.queries] = weights.to(value.dtype) @ value[block.keys]
        return attended.div_(_seen(query))

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, by_distance, by_time, times = ctx.saved_tensors
        outward = gradients[0] / _seen(query)
        of_query, of_key, of_value = (torch.zeros_like(part, dtype=torch.float32) for part in (query, key, value))
        of_distance = torch.zeros_like(by_distance)
        of_time = None if by_time is None else torch.zeros_like(by_time)
        for block in _blocks(times, query.shape, query.device):
            scores = block.weights(query, key, by_distance, by_time)
            sigmoid = scores.sigmoid()
            weights = block.forget_later(scores * sigmoid)
            by_weight = outward[block.queries] @ value[block.keys].mT
            of_value[block.keys] += weights.to(outward.dtype).mT @ outward[block.queries]
            # silu'(s) = σ(s) (1 + s - silu(s))
            by_score = block.forget_later(scores.sub_(weights).add_(1).mul_(sigmoid).mul_(by_weight))
            typed = by_score.to(query.dtype)
            of_query[block.queries] = (typed @ key[block.keys]).float()
            of_key[block.keys] += typed.mT @ query[block.queries]
            of_pairs = by_score.sum(dim=1)
            of_distance += torch.bincount(block.distances.flatten(), of_pairs.sum(dim=0).flatten(), len(by_distance))
            if of_time is not None and block.buckets is not None:
                of_time += torch.bincount(block.buckets.flatten(), of_pairs.flatten(), BUCKETS)
        parts = (part.to(query.dtype) for part in (of_query, of_key, of_value))
        return *parts, of_distance, of_time, None


def _seen(query: Tensor) -> Tensor:
    """Return the number of items up to each one, shape (L, 1)."""
    return torch.arange(1, query.shape[2] + 1, dtype=query.dtype, device=query.device).unsqueeze(1)


class HSTU(SequenceModel):
    """HSTU: causal pointwise attention with a gate; the state at each item predicts the next one.

    Zhai et al., "Actions speak louder than words: trillion-parameter sequential transducers for generative
    recommendations" (2024), eqs. 1 to 3, with the sampled softmax of the other sequence models. The time of an item is
    its own; the published code takes the next one's, unknown in scoring.
    """

    config: HSTUConfig
    reads_times = True

    def __init__(self, config: HSTUConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.network = Encoder(config, (Block(config) for _ in range(config.num_layers)))

    def states(self, vectors: Tensor, layout: Jagged, times: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return the prediction after each item, shape (P, D); items without times are a unit apart."""
        states: Tensor = self.network(vectors, layout, layout.positions.double() if times is None else times, at)
        return states


class Block(nn.Module):
    """x + f₂(norm(A v) * u) with u, v, q, k = silu(f₁(norm(x))) and A = silu(q kᵀ + bias) / N over earlier items.

    N is the number of items so far. The bias of two items is a learned number of their distance, plus one of the bucket
    of their time apart.
    """

    def __init__(self, config: HSTUConfig) -> None:
        super().__init__()
        dim = config.embedding_dim
        self._heads = config.num_heads
        self.before, self.after = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.inward, self.outward = nn.Linear(dim, 4 * dim), nn.Linear(dim, dim)
        init_small(self.outward)
        self.dropout = Dropout(config.dropout or 0.0)
        self.by_distance = nn.Parameter(torch.zeros(config.num_positions))
        self.by_time = nn.Parameter(torch.zeros(BUCKETS, 1)) if config.relative_time else None

    def forward(self, states: Tensor, layout: Jagged, times: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the states of the next block, shape (T, D); with P places only those, shape (P, D)."""
        dim = states.shape[1]
        gate, inner = F.silu(self.inward(self.before(states))).split([dim, 3 * dim], dim=1)
        attended = layout.map(self._attention, inner, times)
        if at is not None:
            states, attended, gate = states[at], attended[at], gate[at]
        return states + self.outward(self.dropout(self.after(attended) * gate))

    def _attention(self, group: Group, parts: Tensor, times: Tensor) -> Tensor:
        """Return the attended values of a group, shape (S, L, D), from its values, queries and keys, shape (S, L, 3D)."""
        del group  # attention is causal, and padding is at the end
        value, query, key = heads(parts, 3, self._heads)
        by_time = None if self.by_time is None else self.by_time.squeeze(1)
        attended = pointwise_attention(
            (query, key, value), self.by_distance, by_time, None if by_time is None else times
        )
        return attended.transpose(1, 2).flatten(2)
