"""What the statement on a champion says beside the decision: data, settings, code, libraries and processor.

    trained_on     NAME@VERSION of the data set, SHA-256 of its manifest, which names every shard's
    judged_on      the same of the target and the guard sets, with their splits; not of a rollback
    replaces       the champion before, and why that one was tainted where it was
    configuration  recipe and fingerprint of what it was trained with, and by which version of the code
    code           version of this package, SHA-256 of its sources
    libraries      versions of what scores depend on
    processor      its kind: the same one gives the same scores to the last bit, for a shard is scored by one thread

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
from training.mlflow.judging import Ground
from training.mlflow.registry import DATASET_DIGEST_TAG, ModelVersion
from training.mlflow.runs import CONFIG_TAG, DATASET_TAG, RECIPE_TAG, VERSION_TAG
from training.mlflow.taints import taint_of

CODE = ("schemas", "training")
LIBRARIES = ("torch", "numpy", "scipy", "pyarrow", "lapjv")
TARGET, GUARD = "target", "guard"


def evidence_of(
    client: mlflow.MlflowClient,
    version: ModelVersion,
    *,
    ground: Ground | None = None,
    replaces: ModelVersion | None = None,
) -> dict[str, Any]:
    """Return what a statement says of a version.

    Args:
        client: of the registry.
        version: the new champion.
        ground: what it was judged on; None: it was not.
        replaces: the champion before, if any.
    """
    tags, run = version.tags, _run_tags(client, version)
    trained_on = f"{tags[DATASET_TAG]}@{tags[VERSION_TAG]}" if {DATASET_TAG, VERSION_TAG} <= tags.keys() else ""
    return {
        "trained_on": {"dataset": trained_on, "sha256": tags.get(DATASET_DIGEST_TAG, "")},
        "judged_on": [] if ground is None else list(_judged_on(ground)),
        "replaces": None if replaces is None else {"version": replaces.version, "tainted": _why_tainted(replaces)},
        "configuration": {
            "recipe": tags.get(RECIPE_TAG, ""),
            "sha256": run.get(CONFIG_TAG, ""),
            "code_version": run.get("code_version", ""),
        },
        "code": {"version": code_version(), "sha256": code_digest(*CODE)},
        "libraries": libraries(),
        "processor": processor(),
    }


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


def _judged_on(ground: Ground) -> Iterator[dict[str, str]]:
    judged = [(TARGET, "", ground.target, ground.split), *((GUARD, n, *found) for n, found in ground.guards.items())]
    for role, name, reference, split in judged:
        digest = manifest_digest(ground.lake, reference)
        yield {"role": role, "name": name, "dataset": reference, "split": split, "sha256": digest}


def _why_tainted(version: ModelVersion) -> str:
    """Return why a version is tainted, in words; empty where it is not."""
    found = taint_of(version)
    return "" if found is None else str(found)


def _run_tags(client: mlflow.MlflowClient, version: ModelVersion) -> Mapping[str, str]:
    """Return the tags of the run that trained a version; none where it was deleted."""
    with suppress(MlflowException):
        if version.run_id is not None:
            return dict(client.get_run(version.run_id).data.tags)
    return {}
