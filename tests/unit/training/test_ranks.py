"""Collectives in real processes: sums, batch normalization, and errors of a failed rank."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.models.layers import BatchNorm
from recsys_cli.training import ranks as gradients
from recsys_cli.training.member import Member
from recsys_cli.training.ranks import LostRankError, Ranks, process_group
from tests.ranks import new_store, on_ranks

CPU = torch.device("cpu")


def member() -> Member:
    found = Member.from_environment()
    assert found is not None
    return found


# -- the environment --------------------------------------------------------------------------------------------------


def test_a_process_is_alone_where_nothing_says_otherwise() -> None:
    assert Member.from_environment({}) is None
    assert Member.from_environment({"RANK": "0", "WORLD_SIZE": "1"}) is None


def test_torchrun_says_which_process_it_is() -> None:
    given = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert Member.from_environment(given) == Member(5, 8, 1, 4)
    assert Member.from_environment({"RANK": "0", "WORLD_SIZE": "2"}) == Member(0, 2, 0, 2)


@pytest.mark.parametrize("given", [{"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "one", "WORLD_SIZE": "2"}])
def test_an_impossible_process_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"impossible process: RANK=(2|one), WORLD_SIZE=2"):
        Member.from_environment(given)


# -- what they tell each other ----------------------------------------------------------------------------------------


def tell() -> dict[str, Any]:
    for _ in range(2):  # one group after the other, as of the runs of a bench
        with process_group(member(), CPU) as ranks:
            told = {
                "sum": ranks.sum(torch.tensor([1.0, ranks.rank])).tolist(),
                "any": [ranks.any(ranks.rank == 1), ranks.any(False)],
                "rows": ranks.gather_rows(torch.full((ranks.rank, 2), ranks.rank)).tolist(),
                "none": ranks.gather_rows(torch.empty(0, 3)).shape,
                "first": ranks.from_first({"a": [ranks.rank, None, 0.1]}),
            }
    return told


def test_ranks_tell_each_other() -> None:
    expected = {
        "sum": [3.0, 3.0], "any": [True, False], "rows": [[1, 1], [2, 2], [2, 2]], "none": (0, 3),
        "first": {"a": [0, None, 0.1]},
    }  # fmt: skip
    assert on_ranks(3, tell) == [expected] * 3


def test_one_process_tells_itself() -> None:
    alone, value = Ranks(), torch.arange(3)
    assert alone.sum(value) is value
    assert alone.gather_rows(value) is value
    assert (alone.any(True), alone.any(False), alone.from_first("x"), alone.is_first) == (True, False, "x", True)


# -- gradients --------------------------------------------------------------------------------------------------------


def parameters(rank: int) -> list[nn.Parameter]:
    """Parameters with all kinds of gradients, different on each rank."""
    random = torch.Generator().manual_seed(rank)
    dense = [nn.Parameter(torch.zeros(*shape)) for shape in ((3,), (2, 2), (100,), (7,), (1,))]
    tables = [nn.Parameter(torch.zeros(10, 4)) for _ in range(4)]
    for number, one in enumerate(dense):
        one.grad = torch.randn(one.shape, generator=random)
        if number == 3 and rank != 1:  # no gradient on some ranks
            one.grad = None
    dense[4].grad = None  # nor on any
    for number, table in enumerate(tables[:3]):
        ids = torch.randperm(10, generator=random)[: 4 + rank].sort().values
        if number == 1:  # repeated, as after two backward passes
            ids = torch.cat([ids, ids])
        if number == 2 and rank != 1:  # rows on one rank only
            ids = ids[:0]
        values = torch.randn(ids.numel(), 4, generator=random)
        table.grad = torch.sparse_coo_tensor(ids[None], values, table.shape, check_invariants=False)
    return dense + tables


def added() -> list[tuple[Tensor, Tensor | None] | None]:
    gradients._BUCKET = 8  # so that some travel together and some alone
    with process_group(member(), CPU) as ranks:
        mine = parameters(ranks.rank)
        ranks.sum_gradients(nn.ParameterList(mine))
        return [
            None if one.grad is None
            else (one.grad._values(), one.grad._indices()[0]) if one.grad.is_sparse
            else (one.grad, None)
            for one in mine
        ]  # fmt: skip


@pytest.mark.parametrize("world_size", [2, 3])
def test_gradients_are_added_up_in_the_same_bits_everywhere(world_size: int) -> None:
    results = on_ranks(world_size, added)
    everyone = [parameters(rank) for rank in range(world_size)]
    for number, of_all in enumerate(zip(*everyone, strict=True)):
        found = [result[number] for result in results]
        present = [one.grad.to_dense() for one in of_all if one.grad is not None]
        if not present:
            assert found == [None] * world_size
            continue
        total, ids = found[0]
        assert all(torch.equal(other, total) for other, _ in found)
        if ids is not None:
            assert (ids[1:] > ids[:-1]).all()
            total = torch.zeros(10, 4).index_copy_(0, ids, total)
        torch.testing.assert_close(total, torch.stack(present).sum(0))


# -- batch normalisation ----------------------------------------------------------------------------------------------


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(BatchNorm(5), nn.Linear(5, 4), nn.Tanh(), BatchNorm(4))


def rows_and_factors(number: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(number)
    return torch.randn(number, 5, generator=random) * 3 + 10, torch.randn(number, 4, generator=random)


def normalised(pieces: Sequence[int], dtype: torch.dtype) -> dict[str, Tensor]:
    with process_group(member(), CPU) as ranks:
        net, stop = network(), list(accumulate(pieces))[ranks.rank]
        here = slice(stop - pieces[ranks.rank], stop)
        ranks.prepare(net)
        rows, factors = rows_and_factors(sum(pieces))
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            outputs = net(rows[here])
        (outputs * factors[here]).sum().backward()
        ranks.sum_gradients(net)
        outputs = ranks.gather_rows(outputs.detach().float())
    gradients = {name: one.grad for name, one in net.named_parameters() if one.grad is not None}
    return {"outputs": outputs, **gradients, **dict(net.named_buffers())}


@pytest.mark.parametrize("pieces", [(4, 3), (2, 0), (0, 1), (5, 6, 0)])
def test_a_batch_is_normalised_over_all_ranks(pieces: tuple[int, ...]) -> None:
    net = network()
    rows, factors = rows_and_factors(sum(pieces))
    outputs = net(rows)
    (outputs * factors).sum().backward()
    expected = {"outputs": outputs.detach(), **{name: one.grad for name, one in net.named_parameters()}}
    expected |= dict(net.named_buffers())
    for found in on_ranks(len(pieces), normalised, pieces, torch.float32):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(
                found[name], value, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


def test_a_batch_in_bf16_is_normalised_over_all_ranks() -> None:
    one, two = (on_ranks(len(pieces), normalised, pieces, torch.bfloat16)[0] for pieces in ((50, 0), (25, 25)))
    torch.testing.assert_close(two["outputs"], one["outputs"], rtol=0.05, atol=0.05)
    torch.testing.assert_close(two["3.weight"], one["3.weight"], rtol=0.05, atol=0.5)


def prepare_another() -> None:
    with process_group(member(), CPU) as ranks:
        ranks.prepare(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))


def test_a_normalisation_that_sees_one_piece_is_refused() -> None:
    said = on_ranks(2, prepare_another)[0]
    assert "the model has BatchNorm1d, which normalizes the rows of each process separately" in said


# -- when one fails ---------------------------------------------------------------------------------------------------


def one_reads_nonsense() -> None:
    with process_group(member(), CPU) as ranks:
        if ranks.rank == 1:
            raise DataError("part 7 is broken", hint="mend it")
        ranks.any(False)


def test_the_others_say_what_went_wrong_on_the_rank_that_failed() -> None:
    assert on_ranks(3, one_reads_nonsense) == [
        "LostRankError: rank 1: part 7 is broken",
        "DataError: part 7 is broken",
        "LostRankError: rank 1: part 7 is broken",
    ]


def one_dies() -> str:
    net = network()
    try:
        with process_group(member(), CPU) as ranks:
            ranks.prepare(net)
            with ranks.restore_buffers(net):
                net[0](torch.ones(2, 5))
                if ranks.rank == 1:
                    os._exit(9)
                net[3](torch.ones(2, 4))
    except LostRankError as error:
        fresh = dict(network().named_buffers())
        kept = all(torch.equal(value, fresh[name]) for name, value in net.named_buffers())
        return f"{'kept' if kept else 'changed'}; {error}"
    return "nothing was lost"


def test_a_rank_that_dies_is_noticed_and_the_step_is_undone() -> None:
    first, second = on_ranks(2, one_dies)
    assert second == 9
    assert first.startswith("kept; another rank of this run is gone: ")
    assert "gloo" not in first


def they_disagree() -> None:
    with process_group(member(), CPU) as ranks:
        ranks.agree({"the step": 3, "the run": "abc"})
        ranks.agree({"the step": 3 + ranks.rank, "the run": "abc"})


def test_ranks_that_read_other_things_are_told_apart() -> None:
    first, second = on_ranks(2, they_disagree)
    assert second == "TrainingError: rank 1: the step is 4 and 3 on rank 0"
    assert first.startswith("LostRankError: rank 1: ")


def wait_briefly() -> None:
    with process_group(member(), CPU, timeout=timedelta(seconds=1)):
        pass


def test_a_rank_that_never_comes_is_named() -> None:
    (said,) = on_ranks(3, wait_briefly, ranks=range(1))
    assert said == "TrainingError: rank 1, 2 of 3 did not join the run within 1 s"


def one_dies_again(late: int, dies: bool) -> int:
    if member().rank == late:
        time.sleep(1)
    with process_group(member(), CPU) as ranks:
        if dies and ranks.rank == 1:
            os._exit(9)
        return int(ranks.sum(torch.tensor(1)))


@pytest.mark.parametrize("late", [0, 1])
def test_a_restart_finds_no_address_and_no_error_of_dead_processes(late: int) -> None:
    store = new_store()
    for dies in (True, True, False):
        said = on_ranks(2, one_dies_again, late, dies, store=store)
    assert said == [2, 2]
