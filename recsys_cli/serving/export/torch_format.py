"""`--format torch`: encoded inputs to scores as a file of torch.export, which loads without this package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from recsys_cli.serving.export.check import BATCH_SIZES, eager_outputs, largest_difference
from recsys_cli.serving.export.feeding import feed
from recsys_cli.serving.export.inputs import signature
from recsys_cli.serving.export.programs import Export, programs_of
from recsys_cli.serving.export.samples import encoded_sample
from recsys_cli.serving.export.written import Written, total_bytes
from recsys_cli.serving.served import ServedModel
from recsys_cli.workspace import write_json

_EXAMPLE = 3
"""Rows of the example batch; 0 and 1 would become constants."""


def export_torch(served: ServedModel, folder: Path) -> Written:
    """Write `<name>.pt2` for each program of a model, and signature.json.

    Args:
        served: The model.
        folder: An existing folder.

    Raises:
        ConfigError: The model has no exportable program.
        DataError: The outputs of a program differ from the model's.
    """
    signatures, differences = [], dict.fromkeys(BATCH_SIZES, 0.0)
    for export in programs_of(served):
        path = folder / f"{export.name}.pt2"
        torch.export.save(traced(export, served), path)
        loaded = torch.export.load(path).module()
        for size in BATCH_SIZES:
            batch = encoded_sample(served, size, seed=size)
            inputs = encoded_inputs(export, served, size)
            with torch.no_grad():
                outputs = loaded(inputs).numpy()
            difference = largest_difference(eager_outputs(export.eager, batch), np.asarray(outputs), what=path.name)
            differences[size] = max(differences[size], difference)
        width = None if outputs.ndim == 1 else outputs.shape[1]
        signatures.append(signature(export.program.inputs, output=export.output, width=width, program=path.name))
    write_json(
        folder / "signature.json", {"format": "torch.export", "call": "module(inputs: dict)", "programs": signatures}
    )
    return Written(folder, differences, total_bytes(folder), {"all inputs": "the program takes encoded values"})


def traced(export: Export, served: ServedModel) -> torch.export.ExportedProgram:
    """Return the program as a graph with a dynamic batch and dynamic list lengths."""
    inputs = encoded_inputs(export, served, _EXAMPLE)
    dynamic = {
        one.name: dict.fromkeys(range(len(one.shape)), torch.export.Dim.DYNAMIC) for one in export.program.inputs
    }
    with torch.no_grad():
        return torch.export.export(export.program, (inputs,), dynamic_shapes=(dynamic,), strict=False)


def encoded_inputs(export: Export, served: ServedModel, size: int) -> dict[str, torch.Tensor]:
    """Return the inputs of a program for random rows."""
    features = encoded_sample(served, size, seed=size).features
    return {name: torch.from_numpy(array) for name, array in feed(export.program.inputs, {}, features).items()}
