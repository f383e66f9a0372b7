"""Studies of several models as text: a comparison, a sweep, a transfer, the published results below ours."""

from collections.abc import Sequence
from itertools import product

from training.evaluation.studies import ModelComparison, StudyCell, Sweep
from training.metrics.scores import Score
from training.report.sections import POINTS, Cell, Row, Table, cell_text, models_table, published_rows, score_row


def comparison_lines(comparison: ModelComparison) -> list[str]:
    """Return means, paired differences to the first model, and agreement on documents."""
    models, metrics = comparison.models, comparison.kind.metrics
    means = models_table((score_row(each.name, each.means, metrics) for each in models), comparison.kind)
    differences = (
        Row(each.name, tuple(each.differences[metric].score(metric, n=0, unit=POINTS) for metric in metrics))
        for each in models[1:]
    )
    left_out = f"; {comparison.left_out} were not scored with every model" if comparison.left_out else ""
    return [
        *means.above(published_rows(_name(comparison.dataset), comparison.kind)).lines(),
        f"minus {models[0].name}, paired:",
        *models_table(differences, comparison.kind).lines()[1:],
        f"rank correlation of per-document {metrics[comparison.kind.leading]}:",
        *_agreement_table(comparison).lines()[1:],
        f"{len(comparison.documents)} documents{left_out}",
    ]


def _agreement_table(comparison: ModelComparison) -> Table:
    """Return the rank correlations, models numbered in the heads."""
    rows = (
        Row(
            f"{number}  {result.name}",
            tuple(Score("spearman", value, unit="correlation", note="none") for value in own),
        )
        for number, (result, own) in enumerate(zip(comparison.models, comparison.agreement, strict=True), start=1)
    )
    return Table(("Model", *map(str, range(1, len(comparison.models) + 1))), tuple(rows))


def sweep_lines(sweep: Sweep) -> list[str]:
    """Return a row for each combination, the model of each, and why others have none."""
    rows = (score_row(cell.title, cell.means, sweep.kind.metrics, note=cell.model) for cell in sweep.cells)
    table = models_table(rows, sweep.kind, head="Settings").above(published_rows(_name(sweep.dataset), sweep.kind))
    return [f"{sweep.dataset}, {sweep.split}", *table.lines(), *table.footnotes, *_problems(sweep.cells)]


def transfer_lines(cells: Sequence[StudyCell]) -> list[str]:
    """Return AUC of every model (down) on every data set (across); a model's own data set is marked."""
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        text = "–" if cell.problem else cell_text(cell.means["auc"])
        row = rows.setdefault(f"{cell.model}, of {cell.trained_on}", {})
        row[cell.dataset] = text if cell.is_transfer else f"{text} ⌂"
    datasets = tuple(dict.fromkeys(cell.dataset for cell in cells))
    for dataset, table in product(datasets, ("transfer", "links")):
        for published in published_rows(_name(dataset), table=table):
            rows.setdefault(published.title, {})[dataset] = published.cells[0]
    full = (Row(title, tuple(row.get(dataset, "") for dataset in datasets)) for title, row in rows.items())
    return [*Table(("AUC", *datasets), tuple(full)).lines(), *_problems(cells)]


def _problems(cells: Sequence[StudyCell]) -> list[str]:
    return [f"- {cell.title}: {cell.problem}" for cell in cells if cell.problem]


def _name(reference: str) -> str:
    return reference.partition("@")[0]
