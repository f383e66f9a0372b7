"""What the statement on a champion says beside the decision: data, settings, code, libraries and processor.

    trained_on     NAME@VERSION of the data set, SHA-256 of its manifest, which names every shard's
    judged_on      the same of the target and the guard sets, with their splits; not of a rollback
    calibration    digest of what gives its links their probability; empty: it has none
    replaces       the champion before, and why that one was tainted where it was
    configuration  recipe and fingerprint of what it was trained with, and by which version of the code
    code           version of this package, SHA-256 of its sources
    libraries      versions of what scores depend on
    processor      its kind: with the same code and libraries it gives the same scores to the last bit, for a shard is
                   scored by one thread

The model's files are the statement's subject.
"""

import hashlib
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any

import mlflow
import torch
from mlflow.exceptions import MlflowException

from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest
from schemas.versions import code_digest, code_version
from training.loop.context import choose_device
from training.mlflow.judging import JudgingData
from training.mlflow.registry import DATASET_DIGEST_TAG
from training.mlflow.runs import CONFIG_TAG, DATASET_TAG, RECIPE_TAG, VERSION_TAG
from training.promotions.proof import CALIBRATION
from training.promotions.record import ModelVersion, Record

CODE = ("schemas", "training")
LIBRARIES = ("torch", "numpy", "scipy", "pyarrow", "lapjv")
TARGET, GUARD = "target", "guard"


def evidence_of(
    client: mlflow.MlflowClient,
    version: ModelVersion,
    *,
    record: Record,
    judged: JudgingData | None = None,
    calibration: str | None = None,
) -> dict[str, Any]:
    """Return what a statement says of a version.

    Args:
        client: of the registry.
        version: the new champion.
        record: of the model, with the champion before.
        judged: what it was judged on; None: it was not.
        calibration: digest of its calibration; None: the statement is not on that.
    """
    before = record.champion
    tags, run = version.tags, _run_tags(client, version)
    trained_on = f"{tags[DATASET_TAG]}@{tags[VERSION_TAG]}" if {DATASET_TAG, VERSION_TAG} <= tags.keys() else ""
    return {
        "trained_on": {"dataset": trained_on, "sha256": tags.get(DATASET_DIGEST_TAG, "")},
        "judged_on": [] if judged is None else list(_judged_on(judged)),
        "replaces": None
        if before in (None, version.version)
        else {"version": before, "tainted": str(record.taint(before) or "")},
        **({} if calibration is None else {CALIBRATION: calibration}),
        "configuration": {
            "recipe": tags.get(RECIPE_TAG, ""),
            "sha256": run.get(CONFIG_TAG, ""),
            "code_version": run.get("code_version", ""),
        },
        **surroundings(),
    }


def surroundings() -> dict[str, Mapping[str, str]]:
    """Return what must be the same for scores to be the same to the last bit."""
    code = {"version": code_version(), "sha256": code_digest(*CODE)}
    return {"code": code, "libraries": libraries(), "processor": processor()}


def libraries() -> dict[str, str]:
    """Return the versions of what scores depend on."""
    return {name: metadata.version(name) for name in LIBRARIES}


def processor() -> dict[str, str]:
    """Return what kind of processor scores are computed on here."""
    device = choose_device()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"device": device.type, "name": name, "capability": torch.backends.cpu.get_cpu_capability()}


def manifest_digest(lake: Lake, reference: str) -> str:
    """Return the SHA-256 (hex) of the manifest of NAME@VERSION; raises a `NotFoundError` where there is none."""
    return hashlib.sha256(read_manifest(lake, reference)[1].read(MANIFEST)).hexdigest()


def _judged_on(data: JudgingData) -> Iterator[dict[str, str]]:
    judged = [(TARGET, "", data.target, data.split), *((GUARD, n, *found) for n, found in data.guards.items())]
    for role, name, reference, split in judged:
        digest = manifest_digest(data.lake, reference)
        yield {"role": role, "name": name, "dataset": reference, "split": split, "sha256": digest}


def _run_tags(client: mlflow.MlflowClient, version: ModelVersion) -> Mapping[str, str]:
    """Return the tags of the run that trained a version; none where it was deleted."""
    with suppress(MlflowException):
        if version.run_id is not None:
            return dict(client.get_run(version.run_id).data.tags)
    return {}
