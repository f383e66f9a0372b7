"""Counter-based random streams: the same key gives the same numbers on every machine, for any number of workers.

Everything random in the training core is drawn from a stream whose key says what it is for (`("batches", seed,
epoch)`), so no generator has a state that must be saved, passed on or kept in step between workers.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from schemas.versions import canonical_json

StreamKey = str | int


def stream(*key: StreamKey) -> np.random.Generator:
    """Return the generator of a key: Philox under the SHA-256 of the key's canonical JSON."""
    return np.random.Generator(np.random.Philox(key=np.frombuffer(_digest(key)[:16], dtype=np.uint64)))


def seed_of(*key: StreamKey) -> int:
    """Return the seed of a key for a generator that takes one integer (torch's), in [0, 2^63)."""
    return int.from_bytes(_digest(key)[:8], "little") >> 1


@contextmanager
def seeded(device: torch.device, *key: StreamKey) -> Iterator[None]:
    """Make torch's random numbers inside depend on the key alone, and leave its generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed_of(*key))
        yield


def _digest(key: tuple[StreamKey, ...]) -> bytes:
    return hashlib.sha256(canonical_json(list(key)).encode()).digest()
