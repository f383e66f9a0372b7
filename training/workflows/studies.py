"""Studies of several models: side by side on the same documents, on data sets of others, and sweeps over settings.

A sweep trains and judges every combination of some settings (Hessel 2019, tables S1-S4). A cell is a run of `train` and
an evaluation of its model. What was trained before with the same settings on the same version is taken over, what was
interrupted goes on, and what another process trains is waited for: a sweep that was killed is simply started again, and
two may run side by side. The runs are children of one run, which keeps the table. Models are chosen on the validation
split by default: what is best of many on the test split is too good there.
"""

from collections.abc import Sequence

from schemas.configs import resolve
from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import BuildError, Say, UsageError
from schemas.overrides import override
from schemas.versions import fingerprint
from training.data.documents import TextView
from training.data.loading import identify
from training.evaluation.baselines import Baseline, evaluate_baseline
from training.evaluation.evaluate import STANDARD_CONFIG, Evaluation
from training.evaluation.models import evaluate_model
from training.evaluation.studies import (
    ModelComparison,
    StudyCell,
    Sweep,
    combinations,
    compare_models,
    transfer_cells,
)
from training.mlflow.loading import load, open_registry
from training.mlflow.runs import SHOWN, TrackedRun, finishing, open_tracking, parent_run, set_parent
from training.mlflow.tracked_training import run_train
from training.promotions.loaded import LoadedModel
from training.recipes import DEFAULT_RECIPE
from training.recipes import recipe as named_recipe
from training.report.sections import sweep_lines
from training.workflows.evaluate import run_evaluate


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
    evaluations: dict[str, Evaluation] = {}
    for entry in entries:
        say(f"scoring {entry.uri if isinstance(entry, LoadedModel) else entry} on {reference}, split {split}")
        if isinstance(entry, LoadedModel):
            name = f"{entry.version.name} {entry.version.version}" if entry.version else entry.uri
            most = STANDARD_CONFIG.max_documents
            evaluations[name] = evaluate_model(entry.model, home, reference, split, max_documents=most)
        else:
            view, config = TextView.of(first.config.reading), STANDARD_CONFIG
            result = evaluate_baseline(Baseline(entry), home, reference, split, config=config, view=view)
            evaluations[entry] = result.evaluation
    return compare_models(evaluations, dataset=reference, split=str(split))


def run_transfer(
    *,
    models: Sequence[str],
    datasets: Sequence[str],
    lake: str,
    split: str = Split.TEST,
    tracking: str | None = None,
    say: Say,
) -> tuple[StudyCell, ...]:
    """Judge every model on every data set.

    Raises:
        UsageError: a model, data set or split is not there.
    """
    home, client = Lake.at(lake), open_registry(tracking, models)
    references = ["@".join(home.find(dataset)) for dataset in datasets]
    loaded = {found.uri: found.model for found in (load(model, client) for model in models)}
    return tuple(transfer_cells(loaded, home, references, split, say=say))


PAPER = ("training.negative_documents=10,20,30", "objective.negatives=hardest,mean")


def run_sweep(
    *,
    lake: str,
    dataset: str,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    vary: Sequence[str] = PAPER,
    workers: int = 1,
    split: str = Split.VAL,
    tracking: str | None = None,
    say: Say,
) -> Sweep:
    """Train and judge every combination; a run that comes to no model is a cell with its reason.

    Args:
        lake: path or URI of the lake.
        dataset: NAME or NAME@VERSION.
        recipe: named configuration.
        overrides: `KEY=VALUE` of all cells.
        vary: `KEY=VALUE,VALUE,...` of what is varied.
        workers: training processes of a cell.
        split: that the models are judged on.
        tracking: URI of the MLflow store.
        say: takes a line of progress.

    Raises:
        UsageError: the data set is not there, does not fit a combination or has no known link in the split: before
            anything is trained.
        ConfigError: a combination is no configuration: likewise.
    """
    name, home, client = recipe or DEFAULT_RECIPE, Lake.at(lake), open_tracking(tracking)
    reference = "@".join(home.find(dataset))
    manifest, folder = read_manifest(home, reference)
    configs = {each: override(named_recipe(name), [*overrides, *each]) for each in combinations(vary)}
    if not (split in manifest.splits and manifest.splits[split].links):
        raise UsageError(f"sweep: no link of {reference}, split {split}, is known, so no combination can be judged")
    for config in configs.values():
        identify(manifest, folder, config.reading)
    key = fingerprint([reference, *map(resolve, configs.values())])
    parent = parent_run(
        client,
        manifest.dataset,
        key,
        f"sweep of {name} on {manifest.dataset}@{manifest.version[:SHOWN]}: {' '.join(vary)}",
    )
    with finishing(TrackedRun(client, parent, {})):
        cells = tuple(
            _cell(
                name, [*overrides, *settings], reference, settings, lake=lake, workers=workers, split=split,
                parent=parent, tracking=client.tracking_uri, say=say,
            )
            for settings in configs
        )  # fmt: skip
        sweep = Sweep(recipe=name, dataset=reference, split=str(split), run=parent, cells=cells)
        client.log_text(parent, "\n".join(sweep_lines(sweep)), f"sweep-{split}.txt")
    return sweep


def _cell(
    recipe: str,
    overrides: Sequence[str],
    reference: str,
    settings: tuple[str, ...],
    *,
    lake: str,
    workers: int,
    split: str,
    parent: str,
    tracking: str,
    say: Say,
) -> StudyCell:
    """Train and judge one combination, whose `settings` are among the overrides."""
    say(f"training {', '.join(settings)}")
    try:
        trained = run_train(
            lake=lake, dataset=reference, recipe=recipe, overrides=overrides, workers=workers, reuse=True,
            parent=parent, tracking=tracking, say=say,
        )  # fmt: skip
        set_parent(open_tracking(tracking), str(trained.version.run_id), parent)
    except BuildError as problem:
        say(f"no model: {problem}")
        return StudyCell(settings=settings, problem=str(problem))
    judged = run_evaluate(
        model=trained.version.uri, dataset=reference, lake=lake, split=split, tracking=tracking, with_baselines=False,
        needs_links=True, say=say,
    )  # fmt: skip
    return StudyCell(
        settings=settings, model=trained.version.uri, run=str(trained.version.run_id), means=judged.means()
    )
