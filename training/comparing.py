"""What `multilink compare` does: several models scored on one data set version and put side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Lake
from training.evaluation.compare import Contestant, ModelComparison, compare_models
from training.evaluation.evaluate import evaluate_model
from training.mlflow.loading import LoadedModel, load
from training.mlflow.runs import open_tracking
from training.report.pages import comparison_page, write_page


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSummary:
    """Models compared on a split of NAME@VERSION, and the page, where one was written."""

    dataset: str
    split: str
    comparison: ModelComparison
    page: Path | None = None

    def to_json(self) -> dict[str, Any]:
        page = {} if self.page is None else {"report": str(self.page)}
        return {"dataset": self.dataset, "split": self.split, **self.comparison.to_json(), **page}


def run_compare(
    *,
    models: Sequence[str],
    dataset: str | None,
    lake: str,
    split: str = Split.TEST,
    directory: Path | None = None,
    tracking: str | None = None,
    say: Callable[[str], None],
) -> CompareSummary:
    """Score models on the same documents and compare each with the first.

    Args:
        models: ids of runs, or addresses as `multilink evaluate` takes them.
        dataset: NAME or NAME@VERSION; None: what the first model was trained on.
        lake: holds it.
        split: whose documents are scored.
        directory: where the page goes; None: none is written.
        tracking: MLflow's address.
        say: takes a line of progress.

    Raises:
        UsageError: fewer than two models, one that is not there, or none that can be scored on the data set.
    """
    if len(models) < 2:
        raise UsageError(f"compare: expected at least two models, found {len(models)}")
    client, home = open_tracking(tracking), Lake.at(lake)
    loaded = [load(model, client) for model in models]
    reference = "@".join(home.find(dataset or loaded[0].model.card.data.reference))
    contestants = []
    for name, model in zip(model_names(loaded), loaded, strict=True):
        say(f"scoring {model.uri} on {reference}, split {split}")
        contestants.append(Contestant(name, evaluate_model(model.model, home, reference, split)))
    comparison = compare_models(contestants)
    page = None
    if directory is not None:
        dataset_name, _, version = reference.partition("@")
        html = comparison_page(comparison, dataset=dataset_name, version=version, split=str(split))
        page = write_page(directory, html)
    return CompareSummary(dataset=reference, split=str(split), comparison=comparison, page=page)


def model_names(loaded: Sequence[LoadedModel]) -> list[str]:
    """Return a short name for each model: name and version where it is registered, else its run or address.

    No name comes twice.
    """
    names: list[str] = []
    for model in loaded:
        of_run = model.uri.removeprefix("runs:/").partition("/")[0][:8] if model.uri.startswith("runs:/") else ""
        name = (
            f"{model.version.name} {model.version.version}"
            if model.version
            else f"run {of_run}"
            if of_run
            else model.uri
        )
        taken = names.count(name) + sum(other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({taken + 1})" if taken else name)
    return names
