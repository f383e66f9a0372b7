"""Models in MLflow's registry: names, versions with tags, and the aliases.

`challenger` is the version trained last, `champion` the one that promotion chose, `previous_champion` the one before
it. `gate.py` decides which version may become champion, `promotion.py` makes it champion, and `registering.py` writes
the files of a version. `loading.py` reads a model back.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import mlflow
from mlflow.entities import LoggedModel
from mlflow.entities.model_registry import RegisteredModel
from mlflow.exceptions import MlflowException

from schemas.errors import BuildError, NotFoundError, UsageError
from training.evaluation.baselines import NOSTRUCT
from training.mlflow.runs import DATASET_TAG, VERSION_TAG
from training.mlflow.stored import LOG_SUFFIX, PREFIX, canonical_name, earlier_log, no_model
from training.promotions.record import APPROVED_TAG, CHAMPION, COUNT_TAG, DECISION_TAG, Record, Registered

CHALLENGER = "challenger"
EPOCHS_TAG, BEST_EPOCH_TAG, RUN_TAG = "epochs", "best_epoch", "run_id"
DATASET_DIGEST_TAG = "dataset_digest"
ALREADY_EXISTS = "RESOURCE_ALREADY_EXISTS"
ATTEMPTS = 5
PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """A version in the registry.

    Attributes:
        name: registered model.
        version: number, as MLflow writes it.
        run_id: run that trained it.
        tags: data set, recipe, run, lake, digests and, once decided, the decision on its promotion.
        made_at_ms: when it was registered, milliseconds since 1970 by the registry's clock.
    """

    name: str
    version: str
    run_id: str | None
    tags: Mapping[str, str]
    made_at_ms: int = 0

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """What is known of a registered model by its aliases and tags.

    Attributes:
        trained_on: data set versions it has a model of.
        challenger: version with that alias.
        challenger_data: data set version the challenger was trained on.
        is_judged: whether the challenger's promotion has been decided; not where it waited for an approval given since.
        approved_by: who approved the challenger.
        champion: version with that alias.
    """

    trained_on: frozenset[str] = frozenset()
    challenger: str | None = None
    challenger_data: str | None = None
    is_judged: bool = False
    approved_by: str = ""
    champion: str | None = None


def find_model(client: mlflow.MlflowClient, name: str) -> RegisteredModel:
    """Return a registered model by its name, or by another spelling of its objective.

    Raises:
        NotFoundError: there is no such model; the message names those there are.
    """
    for spelling in (name, canonical_name(name)):
        with suppress(MlflowException):
            return client.get_registered_model(spelling)
    raise no_model(name, client.tracking_uri, model_names(client))


def registered(client: mlflow.MlflowClient, name: str) -> Registered:
    """Return a registered model with its versions, and with the log of an earlier release where there is no other.

    Raises:
        NotFoundError: there is no such model.
    """
    model = find_model(client, name)
    created, there = str(model.creation_timestamp), versions(client, f"name = '{model.name}'")
    log = [] if COUNT_TAG in model.tags else versions(client, f"name = '{model.name}{LOG_SUFFIX}'")
    return Registered(
        name=model.name,
        created=created,
        aliases={alias: str(number) for alias, number in model.aliases.items()},
        tags=dict(model.tags),
        versions={each.version: each.tags for each in reversed(there)},
        log=list(earlier_log(((each.version, each.tags, each.made_at_ms) for each in reversed(log)), created)),
    )


def find_version(client: mlflow.MlflowClient, name: str, version: str) -> ModelVersion:
    """Return a version by number or alias.

    Raises:
        NotFoundError: there is no such model or version; the message names those there are.
    """
    model = find_model(client, name)
    with suppress(MlflowException):
        return _version(client.get_model_version(model.name, str(model.aliases.get(version, version))))
    numbers = ", ".join(found.version for found in reversed(versions(client, f"name = '{model.name}'")))
    aliases = ", ".join(f"{alias} = {number}" for alias, number in model.aliases.items())
    raise NotFoundError(
        f"no version '{version}' of model '{model.name}' in {client.tracking_uri}; "
        f"versions: {numbers or 'none'}; aliases: {aliases or 'none'}"
    )


def alias_holder(client: mlflow.MlflowClient, name: str, alias: str) -> ModelVersion | None:
    """Return the version that holds an alias, or None where none does.

    Raises:
        NotFoundError: there is no such model.
    """
    number = find_model(client, name).aliases.get(alias)
    return None if number is None else find_version(client, name, str(number))


def versions(client: mlflow.MlflowClient, where: str) -> list[ModelVersion]:
    """Return all versions that MLflow's filter `where` finds, newest first."""
    found: list[ModelVersion] = []
    page = None
    while page is None or page.token:
        page = client.search_model_versions(where, page_token=page.token if page else None)
        found += map(_version, page)
    return sorted(found, key=lambda item: -int(item.version))


def models_of(client: mlflow.MlflowClient, name: str, dataset_version: str) -> list[ModelVersion]:
    """Return the versions of a registered model that were trained on a data set version, newest first."""
    return versions(client, f"name = '{name}' and tags.{VERSION_TAG} = '{dataset_version}'")


def trained_by(client: mlflow.MlflowClient, run_id: str) -> list[ModelVersion]:
    """Return the versions of all registered models that a run trained, newest first.

    An MLflow server gives an entry in a log of champions the run of the model that it names; those are left out.
    """
    found = versions(client, f"run_id = '{run_id}'")
    return [version for version in found if not version.name.endswith(LOG_SUFFIX)]


def trained_on(client: mlflow.MlflowClient, dataset: str, version: str) -> list[ModelVersion]:
    """Return the versions of all registered models that were trained on a data set version, newest first."""
    return versions(client, f"tags.{DATASET_TAG} = '{dataset}' and tags.{VERSION_TAG} = '{version}'")


def champion_of_dataset(client: mlflow.MlflowClient, dataset: str) -> ModelVersion:
    """Return the champion of the one model of a data set that has one; NoStruct is a baseline, and is not chosen.

    Raises:
        NotFoundError: no model has a champion.
        UsageError: several have; the message names them.
    """
    prefix = f"{PREFIX}{dataset}-"
    names = [name for name in model_names(client) if name.startswith(prefix)]
    champions = [alias_holder(client, name, CHAMPION) for name in names if name != prefix + NOSTRUCT]
    found = [each for each in champions if each is not None and each.tags.get(DATASET_TAG, dataset) == dataset]
    if not found:
        there = ", ".join(names) or "none"
        raise NotFoundError(f"no champion of '{dataset}' in {client.tracking_uri}; name a --model; models: {there}")
    if len(found) > 1:
        there = ", ".join(each.name for each in found)
        raise UsageError(f"'{dataset}' has several champions in {client.tracking_uri}: {there}; name a --model")
    return found[0]


def status_of(record: Record) -> ModelStatus:
    """Return what aliases and tags say of a registered model, which follow its record (`champions.align`)."""
    model = record.model
    challenger = model.aliases.get(CHALLENGER)
    tags = model.versions.get(challenger or "", {})
    decision = json.loads(tags.get(DECISION_TAG, "null"))
    is_waiting = APPROVED_TAG in tags and decision is not None and decision.get("is_waiting")  # and no longer has to
    return ModelStatus(
        trained_on=frozenset(each[VERSION_TAG] for each in model.versions.values() if VERSION_TAG in each),
        challenger=challenger,
        challenger_data=tags.get(VERSION_TAG),
        is_judged=(decision is not None and not is_waiting) or challenger in record.current.champions[:1],
        approved_by=tags.get(APPROVED_TAG, ""),
        champion=record.current.champion,
    )


def model_names(client: mlflow.MlflowClient) -> list[str]:
    """Return the names of the registered models, sorted, without the logs of their champions."""
    names = (model.name for model in client.search_registered_models(max_results=1000))
    return sorted(name for name in names if not name.endswith(LOG_SUFFIX))


def make_name(client: mlflow.MlflowClient, name: str) -> None:
    """Make a registered model of that name where there is none, even if another process makes it at the same time."""
    try:
        client.create_registered_model(name)
    except MlflowException as problem:
        if problem.error_code != ALREADY_EXISTS:
            raise


def _version(stored: mlflow.entities.model_registry.ModelVersion) -> ModelVersion:
    return ModelVersion(
        name=stored.name,
        version=str(stored.version),
        run_id=stored.run_id or None,
        tags=dict(stored.tags),
        made_at_ms=int(stored.creation_timestamp),
    )


def logged_model(client: mlflow.MlflowClient, version: ModelVersion) -> LoggedModel:
    """Return MLflow's logged model that a version was registered from: it has the files and the scores.

    Raises:
        NotFoundError: there is none: the run that trained it was deleted, or it was not registered by this package.
    """
    folder = client.get_model_version_download_uri(version.name, version.version)
    if version.run_id is not None:
        experiment = client.get_run(version.run_id).info.experiment_id
        for model in client.search_logged_models([experiment], f"source_run_id = '{version.run_id}'"):
            if model.artifact_location == folder:
                return model
    raise NotFoundError(f"{version.uri}: expected the logged model that it was registered from, found none")


def write_row(name: str, write: Callable[[], object]) -> None:
    """Write a row of a registered model, again where the registry refuses: two processes at one row disturb each other.

    Raises:
        BuildError: the registry refused each time.
    """
    for attempt in range(ATTEMPTS):
        try:
            write()
            return
        except MlflowException as problem:
            if attempt == ATTEMPTS - 1:
                why = str(problem).splitlines()[0]
                raise BuildError(f"model '{name}': the registry could not be written: {why}") from problem
            time.sleep(PAUSE_S * 2**attempt)
