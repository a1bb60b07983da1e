"""torchrun on each node of a Ray cluster: python -m recsys_cli.executors.ray_gang is the entrypoint of `recsys submit --ray`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

VARIABLE = "RECSYS_GANG"
"""Environment variable with nodes, processes, gpus, and the arguments of torchrun, as JSON."""
_PORT = 29400


def main() -> None:
    """Run torchrun on all nodes until its end; the first failure ends the job, and all its processes."""
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    gang = json.loads(os.environ[VARIABLE])
    ray.init()
    share = {"CPU": gang["processes"], **({"GPU": gang["processes"]} if gang["gpus"] else {})}
    group = placement_group([share] * gang["nodes"], strategy="STRICT_SPREAD")
    ray.get(group.ready())

    def start(function: Any, node: int, *args: Any, **resources: int) -> Any:
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node)
        return ray.remote(max_retries=0, scheduling_strategy=place, **resources)(function).remote(*args)

    first = ray.get(start(ray.util.get_node_ip_address, 0, num_cpus=0))
    own = {"num_cpus": share["CPU"], "num_gpus": share.get("GPU", 0)}
    running = [
        start(_torchrun, node, node, first, str(Path.cwd()), gang["torchrun"], **own) for node in range(gang["nodes"])
    ]
    while running:
        done, running = ray.wait(running)
        ray.get(done)


def _torchrun(node: int, first: str, folder: str, arguments: list[str]) -> None:
    meeting = [f"--node-rank={node}", f"--master-addr={first}", f"--master-port={_PORT}"]
    command = [sys.executable, "-m", "torch.distributed.run", *meeting, *arguments]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603 - torchrun of this interpreter


if __name__ == "__main__":
    main()
