from __future__ import annotations

import pytest
import torch

from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.lightgcn.graph import Graph
from recsys_cli.models.lightgcn.model import Model
from recsys_cli.models.model import TrainingContext
from tests.planted import IDS, NUM_IDS, SCHEMA, Planted, found_by, learn, planted, popularity


def adjacency(rows: Interactions) -> torch.Tensor:
    """The graph as the paper writes it: D^(-1/2) A D^(-1/2), dense, users first; shape (2 V, 2 V)."""
    liked = rows.labels > 0.5
    matrix = torch.zeros((2 * NUM_IDS, 2 * NUM_IDS), dtype=torch.float64)
    users, items = (
        torch.from_numpy(rows.user_idx[liked]).long(),
        torch.from_numpy(rows.item_idx[liked]).long() + NUM_IDS,
    )
    matrix[users, items] = matrix[items, users] = 1.0
    matrix[[0, 1, 2, NUM_IDS, NUM_IDS + 1, NUM_IDS + 2]] = 0
    matrix[:, [0, 1, 2, NUM_IDS, NUM_IDS + 1, NUM_IDS + 2]] = 0
    root = matrix.sum(dim=1).clamp(min=1).rsqrt()
    return root[:, None] * matrix * root


def with_others(data: Planted) -> Interactions:
    """The rows, with some negatives, one duplicate, and one of each id outside the vocabulary."""
    rows = data.train
    labels = rows.labels.copy()
    labels[::9] = 0
    extra = [(3, 2), (1, 5), (int(rows.user_idx[1]), int(rows.item_idx[1]))]
    users, items = (torch.tensor(ids, dtype=torch.int32).numpy() for ids in zip(*extra, strict=True))
    return Interactions(rows.user_idx, rows.item_idx, labels) + Interactions(users, items, labels[1:4])


def a_model(rows: Interactions, **options: object) -> Model:
    torch.manual_seed(0)
    model = build("lightgcn", {"embedding_dim": 8, **options}, SCHEMA)
    assert isinstance(model, Model)
    model.set_context(TrainingContext(lambda: rows, dict))
    return model


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_vectors_are_the_means_over_powers_of_the_graph(layers: int) -> None:
    rows = with_others(planted())
    model = a_model(rows, num_layers=layers)
    learnt = (
        torch.cat([model.embeddings.table("user"), model.embeddings.table("item")]).detach().double().requires_grad_()
    )
    matrix = adjacency(rows)
    expected, power = learnt, learnt
    for _ in range(layers):
        power = matrix @ power
        expected = expected + power
    expected = expected / (layers + 1)
    vectors = torch.cat([model.user_vectors(torch.arange(NUM_IDS)), model.item_vectors(torch.arange(NUM_IDS))])
    torch.testing.assert_close(vectors.double(), expected)
    # ... and gradients go the same way back, but for the rows of padding.
    target = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (expected * target).sum().backward()
    (vectors.double() * target).sum().backward()
    found = torch.cat([model.embeddings.table(name).grad for name in ("user", "item")])
    assert learnt.grad is not None
    learnt.grad[[0, NUM_IDS]] = 0
    torch.testing.assert_close(found.double(), learnt.grad, atol=1e-5, rtol=1e-4)


def test_vectors_are_computed_once_until_the_weights_change(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(planted().train)
    calls = []
    propagate = Graph.propagate
    monkeypatch.setattr(
        Graph, "propagate", lambda self, *tables, layers: calls.append(0) or propagate(self, *tables, layers=layers)
    )

    def vectors() -> torch.Tensor:
        with torch.inference_mode():
            return torch.cat([model.user_vectors(IDS), model.item_vectors(IDS)]).clone()

    before = vectors()
    assert torch.equal(vectors(), before)
    assert len(calls) == 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    model.loss(planted().batch()).backward()
    optimizer.step()
    after = vectors()
    with torch.no_grad():
        table = model.embeddings.table("user")
        table.data = table.data * 2  # as the moving average swaps weights
    swapped = vectors()
    model.load_state_dict({name: torch.zeros_like(weight) for name, weight in model.state_dict().items()})
    assert not torch.allclose(after, before)
    assert not torch.allclose(swapped, after)
    assert not vectors().any()


def test_a_longer_history_is_another_graph() -> None:
    data = planted()
    model = a_model(data.train).eval()
    with torch.no_grad():
        before = model.user_vectors(IDS).clone()
        model.set_context(TrainingContext(lambda: with_others(data), dict))
        assert not torch.allclose(model.user_vectors(IDS), before)


@pytest.mark.parametrize("loss", ["bpr", "softmax"])
def test_planted_groups_are_found(loss: str) -> None:
    data = planted()
    torch.manual_seed(0)
    model = learn(build("lightgcn", {"loss": loss, "embedding_dim": 16}, SCHEMA), data)
    assert popularity(data) < 0.25
    assert found_by(model, data) > 0.5
