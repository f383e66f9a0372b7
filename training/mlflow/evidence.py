"""What the statement on a champion says beside the decision: data, settings, code, libraries and processor.

    trained_on     NAME@VERSION of the data set, SHA-256 of its manifest, which names every shard's
    judged_on      the same of the target and the guard sets, with their splits; not of a rollback
    calibration    digest of what gives its links their probability; empty: it has none
    replaces       the champion before, and why that one was tainted where it was
    code           version of this package, SHA-256 of its sources
    libraries      versions of what scores depend on
    processor      its kind: with the same code and libraries it gives the same scores to the last bit, for a shard is
                   scored by one thread

The model's files, which hold its configuration, are the statement's subject.
"""

import hashlib
import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

import torch

from schemas.lake import MANIFEST
from schemas.manifest import read_manifest
from schemas.versions import code_digest, code_version
from training.loop.context import choose_device
from training.mlflow.judging import JudgingData
from training.mlflow.registry import DATASET_DIGEST_TAG
from training.mlflow.runs import DATASET_TAG, VERSION_TAG
from training.promotions.proof import CALIBRATION
from training.promotions.record import ModelVersion, Record

CODE = ("schemas", "training")
LIBRARIES = ("torch", "numpy", "scipy", "pyarrow", "lapjv")
TARGET, GUARD = "target", "guard"


def evidence_of(
    version: ModelVersion, record: Record, *, judged: JudgingData | None = None, calibration: str | None = None
) -> dict[str, Any]:
    """Return what a statement says of a version.

    Args:
        version: the new champion.
        record: of the model, with the champion before.
        judged: what it was judged on; None: it was not.
        calibration: digest of its calibration; None: the statement is not on that.
    """
    before, tags = record.champion, version.tags
    trained_on = f"{tags[DATASET_TAG]}@{tags[VERSION_TAG]}" if {DATASET_TAG, VERSION_TAG} <= tags.keys() else ""
    replaced = {"version": before, "tainted": str(record.taint(before or "") or "")}
    return {
        "trained_on": {"dataset": trained_on, "sha256": tags.get(DATASET_DIGEST_TAG, "")},
        "judged_on": [] if judged is None else list(_judged_on(judged)),
        "replaces": None if before in (None, version.version) else replaced,
        **({} if calibration is None else {CALIBRATION: calibration}),
        **surroundings(),
    }


def surroundings() -> dict[str, Mapping[str, str]]:
    """Return what must be the same for scores to be the same to the last bit."""
    code = {"version": code_version(), "sha256": code_digest(*CODE)}
    return {
        "code": code,
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "processor": processor(),
    }


def processor() -> dict[str, str]:
    """Return what kind of processor scores are computed on here."""
    device = choose_device()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"device": device.type, "name": name, "capability": torch.backends.cpu.get_cpu_capability()}


def _judged_on(data: JudgingData) -> Iterator[dict[str, str]]:
    judged = [(TARGET, "", data.target, data.split), *((GUARD, n, *found) for n, found in data.guards.items())]
    for role, name, reference, split in judged:
        digest = hashlib.sha256(read_manifest(data.lake, reference)[1].read(MANIFEST)).hexdigest()
        yield {"role": role, "name": name, "dataset": reference, "split": split, "sha256": digest}
