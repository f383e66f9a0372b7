"""Who runs the shards of a data set version: this process, or Ray's workers, here or on the cluster of RAY_ADDRESS."""

import os

from schemas.errors import UsageError
from training.shards import RunShards, run_here


def runner(workers: int) -> RunShards:
    """Return what runs tasks for shards, `workers` at a time.

    Raises:
        UsageError: there are none.
    """
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected at least 1")
    address = os.environ.get("RAY_ADDRESS") or None
    if workers == 1 and address is None:
        return run_here
    from training.ray.shards import RayWorkers

    return RayWorkers(workers, address)
