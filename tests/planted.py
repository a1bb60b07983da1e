"""Users and items in groups, where everybody likes the own group's items: what a retrieval model has to find out."""

from dataclasses import dataclass

import numpy as np
import torch

from recsys_cli.batch import Batch
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.model import Model, TrainingContext

GROUPS, MEMBERS, HELD_OUT = 4, 10, 4
NUM_IDS = 3 + GROUPS * MEMBERS
"""Of users and of items; the first three are no own ones."""
IDS = torch.arange(3, NUM_IDS)
SCHEMA = Schema(
    columns=(
        Column(name="user", role=Role.USER, kind=Kind.CATEGORICAL, dtype="int32", cardinality=NUM_IDS, vocabulary="user"),
        Column(name="item", role=Role.ITEM, kind=Kind.CATEGORICAL, dtype="int32", cardinality=NUM_IDS, vocabulary="item"),
        Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """Rows to learn from, and what is to be found: bool of shape (users, items), by place in IDS."""

    train: Interactions
    wanted: torch.Tensor

    def batch(self) -> Batch:
        ids = {"user": torch.from_numpy(self.train.user_idx), "item": torch.from_numpy(self.train.item_idx)}
        return Batch(ids, {"label": torch.from_numpy(self.train.labels)})

    def known(self) -> TrainingContext:
        return TrainingContext(lambda: self.train, dict)

    def ndcg(self, scores: torch.Tensor) -> float:
        """NDCG at as many places as there is to find, for scores (users, items); what is in train is not ranked."""
        met = torch.zeros_like(scores, dtype=torch.bool)
        met[self.train.user_idx - 3, self.train.item_idx - 3] = True
        best = scores.masked_fill(met, -torch.inf).topk(HELD_OUT).indices
        discount = 1 / torch.arange(2.0, HELD_OUT + 2).log2()
        return float((self.wanted.gather(1, best) * discount).sum(dim=1).mean() / discount.sum())


def planted() -> Planted:
    """Each user has six of the ten items of the own group in train, one of another group, and four to be found."""
    draw = np.random.default_rng(0)
    wanted = torch.zeros((GROUPS * MEMBERS, GROUPS * MEMBERS), dtype=torch.bool)
    users, items = [], []
    for user in range(GROUPS * MEMBERS):
        group = user // MEMBERS
        own = group * MEMBERS + draw.permutation(MEMBERS)
        wanted[user, own[:HELD_OUT]] = True
        other = draw.choice(np.setdiff1d(np.arange(GROUPS * MEMBERS), own))
        items += [*own[HELD_OUT:], other]
        users += [user] * (MEMBERS - HELD_OUT + 1)
    rows = [(np.array(ids) + 3).astype(np.int32) for ids in (users, items)]
    return Planted(Interactions(*rows, np.ones(len(users), np.float32)), wanted)


def learn(model: Model, rows: Planted, *, steps: int = 20, rate: float = 0.05) -> Model:
    """Begin and train a model by all rows in each step; return it in evaluation mode."""
    model.set_context(rows.known())
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    torch.manual_seed(0)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(rows.batch()).backward()
        optimizer.step()
    return model.eval()


def found_by(model: Model, rows: Planted) -> float:
    """NDCG of a model's scores."""
    with torch.inference_mode():
        return rows.ndcg(model.scores(IDS, IDS))


def popularity(rows: Planted) -> float:
    """NDCG of the same ranking for everybody, by rows in train."""
    counts = np.bincount(rows.train.item_idx, minlength=NUM_IDS)[3:]
    return rows.ndcg(torch.from_numpy(counts).float().expand(GROUPS * MEMBERS, -1))
