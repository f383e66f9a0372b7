"""What is kept of a registered version: both towers as one logged model, its signature, digests, card and reports."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import mlflow
import mlflow.pyfunc
from mlflow.models import ModelSignature
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.types.schema import Array, ColSpec, DataType, Object, Property, Schema

from training.evaluation.rows import EvaluationReport
from training.mlflow import pyfunc
from training.mlflow.card import CARD_FILE, installed_versions, model_card
from training.mlflow.registry import (
    CHALLENGER,
    DATASET_DIGEST_TAG,
    MODEL_DIGEST_TAG,
    ModelVersion,
    find_version,
    make_name,
)
from training.model import LinkModel
from training.model_files import folder_digest

MODEL_ARTIFACT = "model"


def register(
    client: mlflow.MlflowClient, directory: Path, *, name: str, run_id: str, tags: Mapping[str, str]
) -> ModelVersion:
    """Log a saved model in its run, register it as the next version of `name`, and make it the challenger.

    With it are logged its signature, an input example, the environment and a model card; the digests of its files and
    of its data set become tags.
    """
    model = LinkModel.load(directory)
    digests = {DATASET_DIGEST_TAG: model.card.data.manifest_digest, MODEL_DIGEST_TAG: folder_digest(directory)}
    with mlflow.start_run(run_id=run_id, log_system_metrics=False):
        logged = mlflow.pyfunc.log_model(
            name=MODEL_ARTIFACT,
            loader_module=pyfunc.__name__,
            data_path=str(directory),
            signature=signature_of(model),
            input_example=pyfunc.example(model),
            pip_requirements=_requirements(),
        )
    make_name(client, name)
    stored = client.create_model_version(
        name, source=logged.artifact_path, run_id=run_id, tags={**tags, **digests}, model_id=logged.model_id
    )
    version = find_version(client, name, str(stored.version))
    write_card(client, version, model, None)
    client.set_registered_model_alias(name, CHALLENGER, version.version)
    return version


def attach(client: mlflow.MlflowClient, version: ModelVersion, path: Path, name: str | None = None) -> None:
    """Keep a file, such as an evaluation report, among a registered version's files, or in the folder `name` there."""
    get_artifact_repository(artifact_folder(client, version)).log_artifact(str(path), name)


def write_card(
    client: mlflow.MlflowClient, version: ModelVersion, model: LinkModel, report: EvaluationReport | None
) -> None:
    """Write the card of a registered version, with the scores of its evaluation where there is one."""
    with tempfile.TemporaryDirectory(prefix="multilink-card-") as scratch:
        card = Path(scratch) / CARD_FILE
        card.write_text(model_card(model, version, report), encoding="utf-8")
        attach(client, version, card)


def artifact_folder(client: mlflow.MlflowClient, version: ModelVersion) -> str:
    """Return the URI of the folder with a registered version's files."""
    return str(client.get_model_version_download_uri(version.name, version.version))


def signature_of(model: LinkModel) -> ModelSignature:
    """Return which columns a model takes and gives, with their types."""
    vectors, texts = Array(Array(DataType.double)), Array(DataType.string)
    types = {
        pyfunc.SENTENCES: texts,
        pyfunc.SENTENCE_VECTORS: vectors,
        pyfunc.IMAGE_VECTORS: vectors,
        pyfunc.REGION_VECTORS: Array(vectors),
        pyfunc.REGION_LABELS: Array(texts),
        pyfunc.PICTURES: texts,
        pyfunc.ROLES: texts,
        pyfunc.LANGUAGE: DataType.string,
    }
    columns = [ColSpec(types[name], name, required=required) for name, required in pyfunc.inputs(model).items()]
    link = Object(
        [
            Property("sentence", DataType.long),
            Property("image", DataType.long),
            Property("similarity", DataType.double),
            Property("probability", DataType.double, required=False),
        ]
    )
    answers = {
        pyfunc.READ: Array(DataType.long),
        pyfunc.SIMILARITIES: vectors,
        pyfunc.LINKS: Array(link),
        pyfunc.MODEL: DataType.string,
    }
    return ModelSignature(
        inputs=Schema(columns), outputs=Schema([ColSpec(kind, name) for name, kind in answers.items()])
    )


def _requirements() -> list[str]:
    """Return what must be installed to use the model: this package's training core, as it is installed here."""
    try:
        own = f"multilink[core]=={metadata.version('multilink')}"
    except metadata.PackageNotFoundError:
        own = "multilink[core]"
    return [own, *(f"{package}=={version}" for package, version in installed_versions().items())]
