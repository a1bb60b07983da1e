"""Matrix factorization with a ranking loss."""

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
    """score(u, i) = p_u · q_i + b_i, from user and item ids only.

    The bias is the last element of an item's embedding, multiplied by a constant 1 in the user's vector.
    """

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(schema, NegativeSampling(config, config.loss))
        self.config = config
        dims = {self.user.name: config.embedding_dim, self.item.name: config.embedding_dim + 1}
        self.embeddings = embed([self.user, self.item], dims, sparse=sparse, placement=placement)

    def encode(self, users: Tensor, items: Tensor) -> tuple[Encoded, Encoded]:
        """Return the embeddings, with a 1 appended to the users'."""
        rows = self.embeddings(Batch({self.user.name: users, self.item.name: items}, {}))
        of_users: Tensor = rows[self.user.name]
        of_items: Tensor = rows[self.item.name]
        return Encoded(F.pad(of_users, (0, 1), value=1.0), of_users), Encoded(of_items, of_items)
