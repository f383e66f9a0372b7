"""Models in MLflow's registry: both towers as one logged model, versions with tags, and the aliases.

`challenger` is the version trained last, `champion` the one that promotion chose, `previous_champion` the one before
it. Which version may become champion is `promotion.py`'s to say, how it does `succession.py`'s; reading a model back is
`loading.py`'s.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import mlflow
import mlflow.pyfunc
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.types.schema import Array, ColSpec, DataType, Object, Property, Schema

from schemas.errors import NotFoundError, UsageError
from training.config import TrainConfig
from training.evaluation.rows import EvaluationReport
from training.mlflow.card import CARD_FILE, installed_versions, model_card
from training.mlflow.runs import VERSION_TAG
from training.model import LinkModel
from training.registry import pyfunc_model
from training.registry.pyfunc_model import (
    IMAGE_VECTORS,
    LANGUAGE,
    LINKS,
    MODEL,
    PICTURES,
    READ,
    REGION_LABELS,
    REGION_VECTORS,
    ROLES,
    SENTENCE_VECTORS,
    SENTENCES,
    SIMILARITIES,
)

CHAMPION, PREVIOUS_CHAMPION, CHALLENGER = "champion", "previous_champion", "challenger"
MODEL_ARTIFACT = "model"
EPOCHS_TAG = "epochs"
DIGEST_TAG = "dataset_digest"
DECISION_TAG = "promotion"
LOG_SUFFIX = ".champions"
ALREADY_EXISTS = "RESOURCE_ALREADY_EXISTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """A version in the registry.

    Attributes:
        name: registered model.
        version: number, as MLflow writes it.
        run_id: run that trained it.
        tags: data set, recipe, run, lake and, once decided, the decision on its promotion.
    """

    name: str
    version: str
    run_id: str | None
    tags: Mapping[str, str]

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a registered model stands.

    Attributes:
        trained_on: data set versions it has a model of.
        challenger: version with that alias.
        challenger_data: data set version the challenger was trained on.
        is_judged: whether the challenger's promotion has been decided.
        champion: version with that alias.
    """

    trained_on: frozenset[str] = frozenset()
    challenger: str | None = None
    challenger_data: str | None = None
    is_judged: bool = False
    champion: str | None = None


def model_name(dataset: str, config: TrainConfig) -> str:
    """Return the name a data set's models with this objective are registered under."""
    return f"multilink-{dataset}-{config.objective.name}"


def register(
    client: mlflow.MlflowClient, directory: Path, *, name: str, run_id: str, tags: Mapping[str, str]
) -> ModelVersion:
    """Log a saved model in its run, register it as the next version of `name`, and make it the challenger.

    With it are logged its signature, an input example, the environment and a model card; the digest of its data set
    becomes a tag.
    """
    model = LinkModel.load(directory)
    tags = {**tags, DIGEST_TAG: model.card.data.manifest_digest}
    with mlflow.start_run(run_id=run_id, log_system_metrics=False):
        logged = mlflow.pyfunc.log_model(
            name=MODEL_ARTIFACT,
            loader_module=pyfunc_model.__name__,
            data_path=str(directory),
            signature=signature_of(model),
            input_example=pyfunc_model.example(model),
            pip_requirements=_requirements(),
        )
    with tempfile.TemporaryDirectory(prefix="multilink-card-") as scratch:
        card = Path(scratch) / CARD_FILE
        card.write_text(model_card(model, name=name, run_id=run_id, tags=tags), encoding="utf-8")
        client.log_model_artifact(logged.model_id, str(card))
    make_name(client, name)
    stored = client.create_model_version(
        name, source=logged.artifact_path, run_id=run_id, tags=tags, model_id=logged.model_id
    )
    client.set_registered_model_alias(name, CHALLENGER, stored.version)
    return _version(stored)


def attach(client: mlflow.MlflowClient, version: ModelVersion, path: Path, name: str | None = None) -> None:
    """Keep a file, such as an evaluation report, among a registered version's files, or in the folder `name` there."""
    get_artifact_repository(artifact_folder(client, version)).log_artifact(str(path), name)


def write_card(
    client: mlflow.MlflowClient, version: ModelVersion, model: LinkModel, report: EvaluationReport | None
) -> None:
    """Write the card of a registered version anew, with the scores of its evaluation."""
    text = model_card(model, name=version.name, run_id=version.run_id or "unknown", tags=version.tags, report=report)
    with tempfile.TemporaryDirectory(prefix="multilink-card-") as scratch:
        card = Path(scratch) / CARD_FILE
        card.write_text(text, encoding="utf-8")
        attach(client, version, card)


def artifact_folder(client: mlflow.MlflowClient, version: ModelVersion) -> str:
    """Return the URI of the folder with a registered version's files."""
    return str(client.get_model_version_download_uri(version.name, version.version))


def versions_of_run(client: mlflow.MlflowClient, run_id: str) -> list[ModelVersion]:
    """Return the versions a run registered, newest first."""
    found = client.search_model_versions(f"run_id = '{run_id}'")
    return sorted(map(_version, found), key=lambda item: -int(item.version))


def find_version(client: mlflow.MlflowClient, name: str, version: str) -> ModelVersion:
    """Return a version by number or alias.

    Raises:
        NotFoundError: there is no such model or version; the message says what there is.
    """
    try:
        if version.isdecimal():
            return _version(client.get_model_version(name, version))
        return _version(client.get_model_version_by_alias(name, version))
    except MlflowException as problem:
        raise NotFoundError(_missing(client, name, version)) from problem


def alias_holder(client: mlflow.MlflowClient, name: str, alias: str) -> ModelVersion | None:
    """Return the version that holds an alias, or None where none does.

    Raises:
        NotFoundError: there is no such model.
    """
    aliases = aliases_of(client, name)
    return find_version(client, name, aliases[alias]) if alias in aliases else None


def champion_of_dataset(client: mlflow.MlflowClient, dataset: str) -> ModelVersion:
    """Return the champion of the one model of a data set that has one.

    Raises:
        NotFoundError: no model has a champion.
        UsageError: several have; the message names them.
    """
    names = [name for name in model_names(client) if name.startswith(f"multilink-{dataset}-")]
    found = [champion for name in names if (champion := alias_holder(client, name, CHAMPION)) is not None]
    if len(found) == 1:
        return found[0]
    if not found:
        there = ", ".join(names) or "none"
        raise NotFoundError(f"no champion of '{dataset}' in {client.tracking_uri}; name a --model; models: {there}")
    champions = ", ".join(each.name for each in found)
    raise UsageError(f"'{dataset}' has several champions in {client.tracking_uri}: {champions}; name a --model")


def models_of(client: mlflow.MlflowClient, name: str, dataset_version: str) -> list[ModelVersion]:
    """Return the versions of a registered model that were trained on a data set version, newest first."""
    found = client.search_model_versions(f"name = '{name}' and tags.{VERSION_TAG} = '{dataset_version}'")
    versions = [
        ModelVersion(name=name, version=str(each.version), run_id=each.run_id or None, tags=dict(each.tags))
        for each in found
    ]
    return sorted(versions, key=_number, reverse=True)


def standing(client: mlflow.MlflowClient, name: str) -> Standing:
    """Return how a registered model stands; one that is not there stands nowhere."""
    if name not in model_names(client):
        return Standing()
    found = client.search_model_versions(f"name = '{name}'")
    challenger = alias_holder(client, name, CHALLENGER)
    champion = alias_holder(client, name, CHAMPION)
    is_champion = challenger is not None and champion is not None and challenger.version == champion.version
    return Standing(
        trained_on=frozenset(each.tags[VERSION_TAG] for each in found if VERSION_TAG in each.tags),
        challenger=None if challenger is None else challenger.version,
        challenger_data=None if challenger is None else challenger.tags.get(VERSION_TAG),
        is_judged=is_champion or (challenger is not None and DECISION_TAG in challenger.tags),
        champion=None if champion is None else champion.version,
    )


def aliases_of(client: mlflow.MlflowClient, name: str) -> dict[str, str]:
    """Return the version each alias of a model stands for.

    Raises:
        NotFoundError: there is no such model.
    """
    try:
        aliases = client.get_registered_model(name).aliases
    except MlflowException as problem:
        raise NotFoundError(_missing(client, name, CHAMPION)) from problem
    return {alias: str(version) for alias, version in aliases.items()}


def log_name(name: str) -> str:
    """Return the name under which the changes of a model's champion are kept (`succession.py`)."""
    return name + LOG_SUFFIX


def model_names(client: mlflow.MlflowClient) -> list[str]:
    """Return the names of the registered models, sorted, without the logs of their champions."""
    names = (model.name for model in client.search_registered_models(max_results=1000))
    return sorted(name for name in names if not name.endswith(LOG_SUFFIX))


def make_name(client: mlflow.MlflowClient, name: str) -> None:
    """Make a registered model of that name where there is none; two who do so at once do no harm."""
    try:
        client.create_registered_model(name)
    except MlflowException as problem:
        if problem.error_code != ALREADY_EXISTS:
            raise


def _version(stored: mlflow.entities.model_registry.ModelVersion) -> ModelVersion:
    return ModelVersion(
        name=stored.name, version=str(stored.version), run_id=stored.run_id or None, tags=dict(stored.tags)
    )


def _missing(client: mlflow.MlflowClient, name: str, version: str) -> str:
    names = model_names(client)
    where = client.tracking_uri
    if name not in names:
        return f"no model '{name}' in {where}; models there: {', '.join(names) or 'none'}"
    numbers = sorted(int(found.version) for found in client.search_model_versions(f"name = '{name}'"))
    aliases = ", ".join(f"{alias} = {number}" for alias, number in client.get_registered_model(name).aliases.items())
    return (
        f"no version '{version}' of model '{name}' in {where}; "
        f"versions: {', '.join(map(str, numbers)) or 'none'}; aliases: {aliases or 'none'}"
    )


def signature_of(model: LinkModel) -> ModelSignature:
    """Return which columns a model takes and gives, with their types."""
    vectors = Array(Array(DataType.double))
    types = {
        SENTENCES: Array(DataType.string),
        SENTENCE_VECTORS: vectors,
        IMAGE_VECTORS: vectors,
        REGION_VECTORS: Array(vectors),
        REGION_LABELS: Array(Array(DataType.string)),
        PICTURES: Array(DataType.string),
        ROLES: Array(DataType.string),
        LANGUAGE: DataType.string,
    }
    columns = [ColSpec(types[name], name, required=required) for name, required in pyfunc_model.inputs(model).items()]
    link = Object(
        [
            Property("sentence", DataType.long),
            Property("image", DataType.long),
            Property("similarity", DataType.double),
            Property("probability", DataType.double, required=False),
        ]
    )
    read = ColSpec(Array(DataType.long), READ)
    answers = [read, ColSpec(vectors, SIMILARITIES), ColSpec(Array(link), LINKS), ColSpec(DataType.string, MODEL)]
    return ModelSignature(inputs=Schema(columns), outputs=Schema(answers))


def _requirements() -> list[str]:
    """Return what must be installed to use the model: this package's training core, as it is installed here."""
    try:
        own = f"multilink[core]=={metadata.version('multilink')}"
    except metadata.PackageNotFoundError:
        own = "multilink[core]"
    return [own, *(f"{package}=={version}" for package, version in installed_versions().items())]


def _number(version: ModelVersion) -> int:
    return int(version.version)
