"""Several models on the same documents, side by side; and on data sets that they were not trained on."""

from collections.abc import Sequence

from schemas.console import Say
from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Lake
from training.data.views import TextView
from training.evaluation.baselines import Baseline, evaluate_baseline
from training.evaluation.evaluate import STANDARD_CONFIG, Evaluation
from training.evaluation.models import evaluate_model
from training.evaluation.studies import ModelComparison, TransferCell, compare_models, transfer_cells
from training.mlflow.loading import LoadedModel, load, open_registry


def run_compare(
    *,
    models: Sequence[str],
    dataset: str | None,
    lake: str,
    split: str = Split.TEST,
    tracking: str | None = None,
    say: Say,
) -> ModelComparison:
    """Score models on the same documents and compare each with the first.

    Args:
        models: ids of runs, addresses as `run_evaluate` takes them, or names of baselines.
        dataset: NAME or NAME@VERSION; None: what the first model was trained on.
        lake: holds it.
        split: whose documents are scored.
        tracking: MLflow's address.
        say: takes a line of progress.

    Raises:
        UsageError: a model, the data set or split is not there; or no document could be scored with every model.
    """
    client, home = open_registry(tracking, set(models) - set(Baseline)), Lake.at(lake)
    entries = [model if model in set(Baseline) else load(model, client) for model in models]
    loaded = [entry for entry in entries if isinstance(entry, LoadedModel)]
    if not loaded:
        raise UsageError("compare: expected a model at least, found baselines alone")
    first = loaded[0].model.card
    reference = "@".join(home.find(dataset or first.data.reference))
    names = iter(model_names(loaded))
    evaluations: dict[str, Evaluation] = {}
    for entry in entries:
        say(f"scoring {entry.uri if isinstance(entry, LoadedModel) else entry} on {reference}, split {split}")
        if isinstance(entry, LoadedModel):
            evaluations[next(names)] = evaluate_model(
                entry.model, home, reference, split, max_documents=STANDARD_CONFIG.max_documents
            )
        else:
            view, config = TextView.of(first.config.reading), STANDARD_CONFIG
            found = evaluate_baseline(Baseline(entry), home, reference, split, config=config, view=view)
            evaluations[entry] = found.evaluation
    return compare_models(evaluations, dataset=reference, split=str(split))


def model_names(loaded: Sequence[LoadedModel]) -> list[str]:
    """Return a short name for each model: name and version where it is registered, else its run or address.

    No name comes twice.
    """
    names: list[str] = []
    for model in loaded:
        name = f"{model.version.name} {model.version.version}" if model.version else model.uri
        if name.startswith("runs:/"):
            name = f"run {name.removeprefix('runs:/')[:8]}"
        taken = names.count(name) + sum(other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({taken + 1})" if taken else name)
    return names


def run_transfer(
    *,
    models: Sequence[str],
    datasets: Sequence[str],
    lake: str,
    split: str = Split.TEST,
    tracking: str | None = None,
    say: Say,
) -> tuple[TransferCell, ...]:
    """Judge every model on every data set.

    Raises:
        UsageError: a model, data set or split is not there.
    """
    home, client = Lake.at(lake), open_registry(tracking, models)
    references = ["@".join(home.find(dataset)) for dataset in datasets]
    loaded = {found.uri: found.model for found in (load(model, client) for model in models)}
    return tuple(transfer_cells(loaded, home, references, split, say=say))
