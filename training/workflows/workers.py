"""Who works on the shards of a data set version: this process, or Ray's workers, here or on a cluster."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from schemas.messages import UsageError
from training.shards import shards_run_by


@contextmanager
def by_workers(workers: int) -> Iterator[None]:
    """Let so many workers work on shards inside: this process, or with more than one, or with RAY_ADDRESS set, Ray's.

    Ray is started, or connected to, once, when the first shards are worked on.

    Raises:
        UsageError: there are none.
    """
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected at least 1")
    address = os.environ.get("RAY_ADDRESS") or None
    if workers == 1 and address is None:
        yield
        return
    from training.ray.train import RayWorkers

    with RayWorkers(workers, address) as run, shards_run_by(run):
        yield
