"""What programs import; stable from here on.

    import multilink

    multilink.build("documents", lake="lake", settings=["source.documents=own/documents.jsonl"])
    trained = multilink.train("documents", lake="lake", recipe="tiny")
    with multilink.load(trained["model_uri"]) as model:
        links = model.link(["Cut the boards.", "Glue them."], ["shelf/1.jpg", "shelf/2.jpg"])

The stages themselves are in `pipelines`, `training` and `orchestration`; the command is `multilink`. What is named here
is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multilink.datasets import Dataset
    from multilink.models import Model
    from orchestration.inference.archive import Archive
    from training.retrieval.search import SearchResult

__all__ = [
    "Archive",
    "Dataset",
    "Model",
    "SearchResult",
    "build",
    "evaluate",
    "load",
    "open_dataset",
    "search",
    "train",
]
_HOMES = {
    "Archive": "orchestration.inference.archive",
    "Dataset": "multilink.datasets",
    "Model": "multilink.models",
    "SearchResult": "training.retrieval.search",
    "open_dataset": "multilink.datasets",
}


def load(address: str, *, tracking_uri: str | None = None, settings: Sequence[str] = ()) -> Model:
    """Return a registered model; arguments and errors as of `Model`."""
    from multilink.models import Model

    return Model(address, tracking_uri=tracking_uri, settings=settings)


def search(index: str | Path, **query: Any) -> SearchResult:
    """Return what one query finds in the index of a folder or URI; of several, open an `Archive` once.

    Args:
        index: path or URI that `multilink index` printed.
        query: as `Archive.search` takes it: `headline=`, `lead=`, `where=` ...
    """
    from orchestration.inference.archive import Archive

    with Archive(index) as archive:
        return archive.search(**query)


def build(dataset: str, *, lake: str, settings: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """Build a data set version as `multilink build` does; returns the summary that `--json` prints.

    Args:
        dataset: its name.
        lake: path or URI of the lake.
        settings: `key=value` of the recipe.
        options: other options of the command: `recipe=`, `runner=`, `workers=`.

    Raises:
        MultilinkError: of the kind that the command ends with (`schemas.errors`).
    """
    return _command(["build", dataset, "--lake", lake], settings, options)


def train(dataset: str, *, lake: str, settings: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """Train on a data set version and register the model as `multilink train` does; returns the summary.

    Args:
        dataset: NAME or NAME@VERSION.
        lake: path or URI of the lake.
        settings: `key=value` of the recipe.
        options: other options of the command: `recipe=`, `workers=`, `resume=`, `tracking_uri=`.

    Raises:
        MultilinkError: of the kind that the command ends with.
    """
    return _command(["train", "--dataset", dataset, "--lake", lake], settings, options)


def evaluate(model: str, dataset: str, *, lake: str, settings: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """Score a model on a data set version as `multilink evaluate` does; returns the summary.

    Args:
        model: its address.
        dataset: NAME or NAME@VERSION.
        lake: path or URI of the lake.
        settings: `key=value`, as the command takes them.
        options: other options of the command: `split=`, `report=`, `tracking_uri=`.

    Raises:
        MultilinkError: of the kind that the command ends with.
    """
    return _command(["evaluate", "--model", model, "--dataset", dataset, "--lake", lake], settings, options)


def _command(step: list[str], settings: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """Do what a command does, in this process; its progress goes nowhere."""
    from orchestration.project import remembered_store
    from orchestration.steps import in_process

    if step[0] != "build" and "tracking_uri" not in options and (store := remembered_store()):
        options = options | {"tracking_uri": store}
    given = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    changes = [part for setting in settings for part in ("--set", setting)]
    return in_process([*step, *given, *changes, "--json"], lambda _: None)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'multilink' has no attribute '{name}'")
