"""Matrix factorisation that learns to rank."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.embedding import embed
from recsys_cli.models.mf.config import Config
from recsys_cli.models.retrieval.model import RetrievalModel
from recsys_cli.models.retrieval.negative_sampling import Encoded, NegativeSampling


class Model(RetrievalModel):
    """score(u, i) = p_u · q_i + b_i, from the ids of user and item alone.

    The bias is the last number of an item's row, and what it meets in the user's vector is a 1: so the score is the
    product of two vectors.

    Raises:
        ConfigError: The schema has not one user, one item, and a label.
    """

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(schema, NegativeSampling(config, config.loss))
        self.config = config
        dims = {self.user.name: config.embedding_dim, self.item.name: config.embedding_dim + 1}
        self.embeddings = embed([self.user, self.item], dims, sparse=sparse, placement=placement)

    def encode(self, users: Tensor, items: Tensor) -> tuple[Encoded, Encoded]:
        """Return rows of the tables, and a 1 at the end of the users'."""
        rows = self.embeddings(Batch({self.user.name: users, self.item.name: items}, {}))
        of_users: Tensor = rows[self.user.name]
        of_items: Tensor = rows[self.item.name]
        return Encoded(F.pad(of_users, (0, 1), value=1.0), of_users), Encoded(of_items, of_items)
