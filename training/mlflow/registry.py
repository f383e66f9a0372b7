"""Models in MLflow's registry: names, versions with tags, and the aliases.

`challenger` is the version trained last, `champion` the one that promotion chose, `previous_champion` the one before
it. `gate.py` decides which version may become champion, `promotion.py` makes it champion, and `registering.py` writes
the files of a version. `loading.py` reads a model back.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlflow
from mlflow.entities import LoggedModel
from mlflow.exceptions import MlflowException

from schemas.messages import BuildError, NotFoundError, UsageError
from training.evaluation.baselines import NOSTRUCT
from training.mlflow.stored import model_name
from training.promotions.record import CHAMPION, DATASET_TAG, ModelVersion, Registered

CHALLENGER = "challenger"
EPOCHS_TAG, BEST_EPOCH_TAG = "epochs", "best_epoch"
DATASET_DIGEST_TAG = "dataset_digest"
ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # the second one: no registered model can be called so
ALREADY_EXISTS = "RESOURCE_ALREADY_EXISTS"
ATTRIBUTES = ("name", "run_id")  # of a version; all else is a tag
ATTEMPTS = 5
PAUSE_S = 0.05


def registered(client: mlflow.MlflowClient, name: str) -> Registered:
    """Return a registered model with its versions.

    Raises:
        NotFoundError: there is no such model; the message names those there are.
    """
    try:
        model = client.get_registered_model(name)
    except MlflowException as problem:
        if problem.error_code not in ABSENT:  # such as a server that does not answer: that is no absence
            raise
        raise NotFoundError(
            f"no model '{name}' in {client.tracking_uri}; models there: "
            f"{', '.join(model_names(client)) or 'none; another store is named by --tracking-uri'}"
        ) from problem
    return Registered(
        registry=client.tracking_uri,
        name=model.name,
        created=str(model.creation_timestamp),
        aliases={alias: str(number) for alias, number in model.aliases.items()},
        tags=dict(model.tags),
        versions={each.version: each for each in reversed(versions(client, name=model.name))},
    )


def find_version(client: mlflow.MlflowClient, name: str, version: str) -> ModelVersion:
    """Return a version by number or alias; raises a `NotFoundError` where there is no such model or version."""
    return registered(client, name).version(version)


def versions(client: mlflow.MlflowClient, **of: str) -> list[ModelVersion]:
    """Return the versions that have all of these attributes (`name`, `run_id`) and tags, newest first."""
    where = " and ".join(
        f"{key if key in ATTRIBUTES else f'tags.{key}'} = {_quoted(value)}" for key, value in of.items() if value
    )
    found = map(_version, _all(partial(client.search_model_versions, where or None)))
    return sorted(found, key=lambda item: -int(item.version))


def _quoted(value: str) -> str:
    """Return a value as MLflow's filters take it: they know no escape, but two kinds of quotation marks."""
    return f'"{value}"' if "'" in value else f"'{value}'"


def _all(search: Callable[..., Any]) -> Iterator[Any]:
    """Yield what a search of the registry finds, of all its pages."""
    page = search()
    yield from page
    while page.token:
        page = search(page_token=page.token)
        yield from page


def champion_of_dataset(client: mlflow.MlflowClient, dataset: str) -> str:
    """Return the name of the one model of a data set that has a champion; NoStruct is a baseline, and is not chosen.

    Raises:
        NotFoundError: no model has a champion.
        UsageError: several have; the message names them.
    """
    names = sorted({each.name for each in versions(client, **{DATASET_TAG: dataset})})
    models = [registered(client, name) for name in names if name != model_name(dataset, NOSTRUCT)]
    champions = [each.version(CHAMPION) for each in models if CHAMPION in each.aliases]
    found = [each.name for each in champions if each.tags.get(DATASET_TAG) == dataset]
    if not found:
        raise NotFoundError(
            f"no champion of '{dataset}' in {client.tracking_uri}; name a --model; models: {', '.join(names) or 'none'}"
        )
    if len(found) > 1:
        raise UsageError(
            f"'{dataset}' has several champions in {client.tracking_uri}: {', '.join(found)}; name a --model"
        )
    return found[0]


def model_names(client: mlflow.MlflowClient) -> list[str]:
    """Return the names of the registered models, sorted."""
    return sorted(each.name for each in _all(client.search_registered_models))


def make_name(client: mlflow.MlflowClient, name: str) -> None:
    """Make a registered model of that name where there is none, even if another process makes it at the same time."""
    try:
        client.create_registered_model(name)
    except MlflowException as problem:
        if problem.error_code != ALREADY_EXISTS:
            raise


def challenge(client: mlflow.MlflowClient, name: str) -> None:
    """Let the newest version of a registered model be its challenger: an older one never overtakes it."""
    write_row(
        name, partial(client.set_registered_model_alias, name, CHALLENGER, versions(client, name=name)[0].version)
    )


def _version(stored: mlflow.entities.model_registry.ModelVersion) -> ModelVersion:
    return ModelVersion(
        name=stored.name,
        version=str(stored.version),
        run_id=stored.run_id or None,
        tags=dict(stored.tags),
    )


def logged_model(client: mlflow.MlflowClient, version: ModelVersion) -> LoggedModel:
    """Return MLflow's logged model that a version was registered from: it has the files and the scores.

    Raises:
        NotFoundError: there is none: the run that trained it was deleted, or it was not registered by this package.
    """
    source = client.get_model_version(version.name, version.version).source
    try:
        return client.get_logged_model(source.removeprefix("models:/"))
    except MlflowException as problem:
        raise NotFoundError(f"{version.uri}: no logged model {source}, which it was registered from") from problem


def write_row(name: str, write: Callable[[], object], note: str = "") -> None:
    """Write a row of a registered model, again where the registry refuses: two processes at one row disturb each other.

    Raises:
        BuildError: the registry refused each time; the message ends with the note.
    """
    for attempt in range(ATTEMPTS):
        try:
            write()
            return
        except MlflowException as problem:
            if attempt == ATTEMPTS - 1:
                why = "; ".join(filter(None, (str(problem).splitlines()[0], note)))
                raise BuildError(f"model '{name}': the registry could not be written: {why}") from problem
            time.sleep(PAUSE_S * 2**attempt)
