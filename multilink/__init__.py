"""The Python interface of multilink. Names in `__all__` are stable.

    import multilink

    multilink.build("documents", lake="lake", settings=["source.documents=own"])
    trained = multilink.train("documents", lake="lake", recipe="tiny")
    with multilink.load(trained["model_uri"]) as model:
        links = model.link(["Cut the boards.", "Glue them."], ["shelf/1.jpg", "shelf/2.jpg"])

The stages are in `pipelines`, `training` and `orchestration`; the command is `multilink`. Each name is imported on
first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multilink.datasets import Dataset, open_dataset
    from multilink.links import Links
    from multilink.models import Model, load
    from newsroom.search.archive import Archive
    from newsroom.search.search import SearchResult
    from training.linking.links import LinkOptions

__all__ = [
    "Archive",
    "Dataset",
    "LinkOptions",
    "Links",
    "Model",
    "SearchResult",
    "__version__",
    "build",
    "evaluate",
    "load",
    "open_dataset",
    "search",
    "train",
]
_HOMES = {
    "Archive": "newsroom.search.archive",
    "Dataset": "multilink.datasets",
    "LinkOptions": "training.linking.links",
    "Links": "multilink.links",
    "Model": "multilink.models",
    "SearchResult": "newsroom.search.search",
    "load": "multilink.models",
    "open_dataset": "multilink.datasets",
}


def search(index: str | Path, **query: Any) -> SearchResult:
    """Return the results of one query in an index. For several queries, open an `Archive`.

    Args:
        index: path or URI that `multilink index` printed.
        query: as `Archive.search` takes it: `headline=`, `lead=`, `where=` ...

    >>> multilink.search("lake/indexes/news/VERSION/MODEL-1", headline="A walk along the river")  # doctest: +SKIP
    """
    with __getattr__("Archive")(index) as archive:
        result: SearchResult = archive.search(**query)
        return result


def build(dataset: str, *, lake: str, settings: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """Build a data set version as `multilink build` does; returns the summary that `--json` prints.

    Args:
        dataset: its name.
        lake: path or URI of the lake.
        settings: `key=value` of the recipe.
        options: other options of the command: `recipe=`, `runner=`, `workers=`.

    Raises:
        MultilinkError: of the kind that the command ends with (`schemas.messages`).
    """
    return _summary("build", options, dataset=dataset, lake=lake, settings=settings)


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
    return _summary("train", options, dataset=dataset, lake=lake, settings=settings)


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
    return _summary("evaluate", options, model=model, dataset=dataset, lake=lake, settings=settings)


def _summary(step: str, options: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return the summary of a step that is done in this process; its progress goes nowhere."""
    from orchestration.project import be_quiet
    from orchestration.steps import from_json, summary_of
    from training.project import setting

    be_quiet()
    store = {} if step == "build" else {"tracking_uri": setting("tracking_uri") or None}
    return summary_of(from_json({"step": step, "settings": store | values | options}), lambda _: None)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from schemas.versions import code_version

        return code_version()
    if name not in _HOMES:
        raise AttributeError(f"module 'multilink' has no attribute '{name}'")
    from orchestration.project import be_quiet

    be_quiet()
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
