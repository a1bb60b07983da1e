"""The order of candidates for users without a history: by the ranker, or by one generator."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recsys_cli.metrics.metric import Hits
from recsys_cli.metrics.ndcg import ndcg
from recsys_cli.metrics.score_counts import Floats
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.two_stage.candidates import HISTORY_LENGTH, LOG_RANK, ranks_in_lists
from recsys_cli.models.two_stage.config import RANKER
from recsys_cli.models.two_stage.labeled import LabeledCandidates
from recsys_cli.models.two_stage.rankers import Ranker

_K = 10
"""Cut-off of the NDCG."""
_RANKER = -1
"""Number in place of a generator's."""


class ColdStart(nn.Module):
    """Replaces the ranker's scores for users without a history by the order of a generator, if one is chosen.

    Users without a history have one list of candidates at a time, so a ranker sees few different ones; a generator can be
    better for them.

    Args:
        option: `auto`, `ranker` or the name of a generator.
        generators: Names of the generators.
        features: Names of the features.
    """

    generator: Tensor

    def __init__(self, option: str, generators: Sequence[str], features: Sequence[str]) -> None:
        super().__init__()
        self._option, self._generators = option, generators
        self._length = features.index(HISTORY_LENGTH)
        self._ranks = [features.index(f"{name}: {LOG_RANK}") for name in generators]
        number = generators.index(option) if option in generators else _RANKER
        self.register_buffer("generator", torch.tensor(number))

    @property
    def chosen(self) -> str:
        """Name of the generator, or `ranker`."""
        number = int(self.generator)
        return RANKER if number == _RANKER else self._generators[number]

    def choose(self, ranker: Ranker, rows: LabeledCandidates, context: TrainingContext) -> None:
        """With `auto`, choose by the NDCG@10 of lists without a history; the ranker is fitted to the other hold-outs.

        The best generator has to gain more than one standard error, as the ranker gets all hold-outs in the end. With one
        hold-out the ranker stays: nothing could measure it.

        Args:
            ranker: The ranker before its training; unchanged afterwards.
            rows: Rows of all hold-outs.
            context: All of train.
        """
        judged = rows.chosen(self._is_cold(rows.features))
        if self._option != "auto" or len(rows.fold.unique()) < 2 or not len(judged.items):
            return
        initial = copy.deepcopy(ranker.state_dict())
        by_ranker = torch.zeros_like(judged.labels)
        for fold in judged.fold.unique():
            ranker.fit(rows.chosen(rows.fold != fold), context)
            own = judged.fold == fold
            by_ranker[own] = ranker.score(judged.group[own], judged.items[own], judged.features[own])
            ranker.load_state_dict(initial)
        scores = [by_ranker, *(-judged.features[:, column] for column in self._ranks)]
        figures = np.stack([_ndcg(judged, one) for one in scores])
        best = int(figures[1:].mean(1).argmax())
        gains = figures[1 + best] - figures[0]
        if gains.mean() > gains.std() / np.sqrt(len(gains)):
            self.generator.fill_(best)

    def replaced(self, scores: Tensor, features: Tensor) -> Tensor:
        """Return the scores of candidates, those of users without a history by the chosen generator; (N,) and (N, F) to (N,)."""
        number = int(self.generator)
        if number == _RANKER:
            return scores
        return torch.where(self._is_cold(features), -features[:, self._ranks[number]], scores)

    def _is_cold(self, features: Tensor) -> Tensor:
        return features[:, self._length] == 0

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Keep the ranker for runs from before this choice."""
        state_dict.setdefault(f"{prefix}generator", torch.tensor(_RANKER))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _ndcg(rows: LabeledCandidates, scores: Tensor) -> Floats:
    """Return the NDCG of each list; positives outside the candidates do not count."""
    row = torch.unique_consecutive(rows.group, return_inverse=True)[1]
    num_lists = int(row[-1]) + 1
    rank = ranks_in_lists(row, scores, num_lists).long()
    top = rank <= _K
    hits = torch.zeros(num_lists, _K, dtype=torch.bool, device=row.device)
    hits[row[top], rank[top] - 1] = rows.labels[top] > 0
    relevant = torch.bincount(row[rows.labels > 0], minlength=num_lists)
    return ndcg(Hits(hits.cpu().numpy(), relevant.cpu().numpy()), _K)
