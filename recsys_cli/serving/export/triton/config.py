"""Generated config.pbtxt of a model: tensors, dynamic batching and instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recsys_cli.serving.export.triton.tensors import Tensor, distinct

_HEAD = """\
# {purpose}
# N rows per request. An optional input that is left out is null in all rows.
# NAME.null (BOOL, in the shape of NAME) marks null values; NaN is null, too.
# NAME.length (INT64) has the number of elements of each list before the padding; -1 is null, without it no list is padded."""
_SAFE = frozenset(range(0x20, 0x7F)) - set(b"\"'\\")


@dataclass(frozen=True)
class Settings:
    """Settings of a served model, for its config.pbtxt.

    Attributes:
        max_batch_size: Most rows of a request, and of a batch.
        preferred_batch_sizes: Rows that end the wait for further requests.
        max_queue_delay_us: Longest wait of a request for others, in microseconds.
        instances: Processes on the CPU; weights and tables are memory-mapped once.
    """

    max_batch_size: int = 4096
    preferred_batch_sizes: Sequence[int] = (16, 64)
    max_queue_delay_us: int = 100
    instances: int = 1


def config_pbtxt(
    name: str,
    purpose: str,
    *,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    bundle: str,
    settings: Settings,
) -> str:
    """Return the configuration of a model.

    Args:
        name: Name of the model.
        purpose: Comment in the first line.
        inputs: Columns of requests; their null masks and lengths are added.
        outputs: Tensors of answers.
        bundle: Path of the bundle from the folder of the model.
        settings: Batching and instances.

    Raises:
        ConfigError: A column has the name of a null mask or of list lengths.
    """
    sizes = ", ".join(str(size) for size in settings.preferred_batch_sizes)
    lines = [
        _HEAD.format(purpose=" ".join(purpose.split())),
        f"name: {quoted(name)}",
        'backend: "python"',
        f"max_batch_size: {settings.max_batch_size}",
        *(line for one in distinct(inputs) for part in one.parts() for line in _tensor("input", part)),
        *(line for one in outputs for line in _tensor("output", one)),
        "dynamic_batching {",
        f"  preferred_batch_size: [ {sizes} ]",
        f"  max_queue_delay_microseconds: {settings.max_queue_delay_us}",
        "}",
        f"instance_group [ {{ count: {settings.instances} kind: KIND_CPU }} ]",
        f'parameters {{ key: "bundle" value {{ string_value: {quoted(bundle)} }} }}',
    ]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return a string of the protobuf text format; all but plain characters are octal escapes."""
    return '"' + "".join(chr(byte) if byte in _SAFE else f"\\{byte:03o}" for byte in text.encode()) + '"'


def _tensor(field: str, tensor: Tensor) -> Iterator[str]:
    yield f"{field} {{"
    yield f"  name: {quoted(tensor.name)}"
    yield f"  data_type: TYPE_{tensor.dtype}"
    yield f"  dims: [ {-1 if tensor.ragged else 1} ]"
    if field == "input" and tensor.ragged:
        yield "  allow_ragged_batch: true"
    if field == "input" and not tensor.required:
        yield "  optional: true"
    yield "}"
