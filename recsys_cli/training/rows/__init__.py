"""Row-wise optimizers of embedding tables: sparse updates of the rows of a batch. One module per rule."""

from recsys_cli.training.rows.adagrad import RowAdagrad
from recsys_cli.training.rows.adam import RowAdam
from recsys_cli.training.rows.row_optimizer import RowOptimizer
from recsys_cli.training.rows.sgd import RowSGD

__all__ = ["RowAdagrad", "RowAdam", "RowOptimizer", "RowSGD"]
