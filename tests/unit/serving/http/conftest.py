"""Bundles of small models, and a server for all tests of routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import recsys_cli as recsys
from recsys_cli.stages.export import export
from tests.servers import Running, running


@pytest.fixture(scope="session")
def bundle_of(
    make_run: Callable[[str], recsys.TrainedRun],
    served_workspace: recsys.Workspace,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Path]:
    """Return the bundle of a model, exported once per session."""
    folder = tmp_path_factory.mktemp("bundles")

    def of(model: str) -> Path:
        target = folder / model
        if not target.exists():
            export(make_run(model), served_workspace, out=target, verify=False)
        return target

    return of


@pytest.fixture(scope="session")
def server(bundle_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a matrix factorization, a model that folds in, and one with features."""
    bundles = [str(bundle_of(model)) for model in ("mf", "ease", "fm")]
    shares = ("--share", "mf=0.5,ease=0.5", "--fsync", "always")
    with running(tmp_path_factory.mktemp("server"), *bundles, *shares) as server:
        yield server
