"""Linking a whole data set version with a model's champion: its vectors are in the shards already.

Links go to `<lake>/links/<data set>/<version>/<model>-<model version>.parquet`: a name that is there is done.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration.steps import Say, Summary
from schemas.documents import Split
from schemas.lake import Folder, Lake
from schemas.manifest import read_manifest

if TYPE_CHECKING:
    from training.linking.links import LinkInput
    from training.model import LinkModel


def links_folder(lake: Lake, dataset: str, version: str) -> Folder:
    """Return the folder of the links of a data set version."""
    return lake.root.child("links", dataset, version)


def links_name(model: str, version: str) -> str:
    """Return the file name of the links that a model version predicts."""
    return f"{model}-{version}.parquet"


def link_version(model: str, reference: str, *, lake: Lake, tracking: str, say: Say) -> Summary:
    """Link every document of NAME@VERSION with a model's champion; the summary is empty where there is no champion."""
    from training.commands import run_link
    from training.registry.evaluations import calibration_of
    from training.registry.loading import load_version
    from training.registry.store import CHAMPION, alias_holder, model_names
    from training.tracking import open_tracking

    client = open_tracking(tracking)
    champion = alias_holder(client, model, CHAMPION) if model in model_names(client) else None
    if champion is None:
        return {}
    dataset, version = lake.find(reference)
    loaded = load_version(champion)
    with tempfile.TemporaryDirectory(prefix="multilink-links-") as scratch:
        path = Path(scratch) / links_name(model, champion.version)
        documents = _inputs(loaded.model, lake, f"{dataset}@{version}")
        calibration = calibration_of(client, loaded)
        summary = run_link(loaded=loaded, documents=documents, output=str(path), calibration=calibration, say=say)
        folder = links_folder(lake, dataset, version)
        folder.write(path.name, path.read_bytes())
    return summary.to_json() | {"output": f"{folder.uri}/{path.name}", "model_version": champion.version}


def _inputs(model: LinkModel, lake: Lake, reference: str) -> Iterator[LinkInput]:
    """Yield the documents of every split with the vectors the model reads."""
    from training.evaluation.evaluate import document_inputs, read_documents
    from training.linking.links import LinkInput

    manifest, _ = read_manifest(lake, reference)
    for split in Split:
        if manifest.parts("documents", split):
            documents = read_documents(model, lake, reference, split)
            given = document_inputs(model, documents)
            yield from (LinkInput(key, item) for key, item in zip(documents.ids, given, strict=True))
