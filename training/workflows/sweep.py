"""Every combination of some settings, trained and judged side by side (Hessel 2019, tables S1-S4).

A cell is a run of `train` and an evaluation of its model. What was trained before with the same settings on the same
version is taken over, what was interrupted goes on, and what another process trains is waited for: a sweep that was
killed is simply started again, and two may run side by side. The runs are children of one run, which keeps the table.
"""

from collections.abc import Sequence
from functools import partial

from schemas.configs import override, resolve
from schemas.console import Say
from schemas.documents import Split
from schemas.errors import BuildError
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.versions import fingerprint
from training.data.loading import identify
from training.evaluation.studies import Sweep, SweepCell, combinations
from training.mlflow.runs import open_tracking, parent_run, set_parent
from training.mlflow.tracked_training import TrainSummary, run_train
from training.recipes import DEFAULT_RECIPE
from training.recipes import recipe as named_recipe
from training.report.studies import sweep_page
from training.workflows.evaluate import EvaluateSummary, run_evaluate

PAPER = ("training.negative_documents=10,20,30", "objective.negatives=hardest,mean")


def run_sweep(
    *,
    lake: str,
    dataset: str,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    vary: Sequence[str] = PAPER,
    workers: int = 1,
    split: str = Split.TEST,
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
        workers: training processes.
        split: that the models are judged on.
        tracking: URI of the MLflow store.
        say: takes a line of progress.

    Raises:
        UsageError: the data set is not there, or does not fit a combination: before anything is trained.
        ConfigError: a combination is no configuration: likewise.
    """
    name, home, client = recipe or DEFAULT_RECIPE, Lake.at(lake), open_tracking(tracking)
    reference = "@".join(home.find(dataset))
    manifest, folder = read_manifest(home, reference)
    configs = {each: override(named_recipe(name), [*overrides, *each]) for each in combinations(vary)}
    for config in configs.values():
        identify(manifest, folder, config)
    key = fingerprint([reference, *map(resolve, configs.values())])
    parent = parent_run(client, manifest.dataset, key, f"sweep of {name}: {' '.join(vary)}")
    train = partial(
        run_train, lake=lake, dataset=reference, recipe=name, workers=workers, reuse=True, parent=parent,
        tracking=tracking, say=say,
    )  # fmt: skip
    evaluate = partial(
        run_evaluate, dataset=reference, lake=lake, split=split, tracking=tracking, with_baselines=False, say=say
    )
    cells = []
    for number, settings in enumerate(configs, start=1):
        say(f"{number} of {len(configs)}: {', '.join(settings)}")
        try:
            found = train(overrides=[*overrides, *settings])
            set_parent(client, found.run_id, parent)
        except BuildError as problem:
            say(f"no model: {problem}")
            cells.append(SweepCell(settings=settings, problem=str(problem)))
        else:
            cells.append(_judged(settings, found, evaluate(model=found.model_uri)))
    sweep = Sweep(recipe=name, dataset=reference, split=str(split), run=parent, cells=tuple(cells))
    client.log_text(parent, sweep_page(sweep), f"sweep-{split}.html")
    client.set_terminated(parent)
    return sweep


def _judged(settings: tuple[str, ...], trained: TrainSummary, judged: EvaluateSummary) -> SweepCell:
    return SweepCell(settings=settings, model=trained.model_uri, run=trained.run_id, means=judged.means())
