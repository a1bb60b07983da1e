from __future__ import annotations

import torch

from recsys_cli.training.row_optimizers import of_rows, rows_of


def held(ids: list[int], rows: list[list[float]]) -> torch.Tensor:
    table = torch.zeros(10, 2, requires_grad=True)
    table.grad = torch.sparse_coo_tensor([ids], torch.tensor(rows), (10, 2), check_invariants=True)
    return table


def test_distinct_rows_are_given_as_they_are() -> None:
    table = held([1, 4], [[1.0, 2.0], [3.0, 4.0]])
    before = table.grad
    ids, rows = rows_of(table)
    assert table.grad is before
    assert ids.tolist() == [1, 4]
    rows.mul_(2)
    assert table.grad.to_dense()[[1, 4]].tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_rows_of_the_same_id_are_added_up_once_for_all_who_ask() -> None:
    table = held([4, 1, 4], [[1.0, 2.0], [3.0, 4.0], [10.0, 20.0]])
    ids, rows = rows_of(table)
    assert (ids.tolist(), rows.tolist()) == ([1, 4], [[3.0, 4.0], [11.0, 22.0]])
    assert rows_of(table)[1].data_ptr() == rows.data_ptr()


def test_ids_in_another_order_are_sorted() -> None:
    ids, rows = rows_of(held([4, 1], [[1.0, 1.0], [2.0, 2.0]]))
    assert (ids.tolist(), rows.tolist()) == ([1, 4], [[2.0, 2.0], [1.0, 1.0]])


def test_of_rows_is_the_tensor_with_those_rows() -> None:
    made = of_rows(torch.tensor([0, 3]), torch.ones(2, 5), torch.Size((4, 5)))
    assert made.is_coalesced()
    assert made.to_dense().sum(1).tolist() == [5.0, 0.0, 0.0, 5.0]
