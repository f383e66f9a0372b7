"""The pages of studies and their tables: models side by side, a sweep, transfer."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from training.evaluation.studies import ModelComparison, ModelResult, Sweep, TransferCell
from training.metrics.links import ScoreKind
from training.metrics.scores import Score
from training.report.figures import scatter
from training.report.pages import render
from training.report.sections import POINTS, Row, RowKind, Table, cell_text, models_table, published_rows, score_row

LINKS = ScoreKind.LINKS.metrics


def comparison_page(found: ModelComparison) -> str:
    """Return the page of several models on the same documents."""
    metrics, first = found.kind.metrics, found.models[0]
    name = found.dataset.partition("@")[0]
    return render(
        "compare",
        found=found,
        name=name,
        leading=metrics[found.kind.leading],
        table=means_table(found).above(published_rows(name, found.kind)),
        differences=difference_table(found),
        agreement=agreement_table(found),
        pairs=[(other.name, _document_scatter(first, other, found.kind)) for other in found.models[1:]],
    )


def comparison_lines(found: ModelComparison) -> list[str]:
    """Return the comparison as aligned text: means, differences to the first model, agreement."""
    left_out = f"; {found.left_out} were not scored with every model" if found.left_out else ""
    return [
        *means_table(found).lines(),
        f"minus {found.models[0].name}, paired:",
        *difference_table(found).lines()[1:],
        f"rank correlation of per-document {found.kind.metrics[found.kind.leading]}:",
        *agreement_table(found).lines()[1:],
        f"{len(found.documents)} documents{left_out}",
    ]


def means_table(found: ModelComparison) -> Table:
    """Return each model's means, the first of them marked."""
    kinds = [RowKind.MODEL, *[RowKind.BASELINE] * len(found.models)]
    rows = zip(found.models, kinds, strict=False)
    return models_table((score_row(each.name, each.means, found.kind.metrics, kind) for each, kind in rows), found.kind)


def difference_table(found: ModelComparison) -> Table:
    """Return each model's paired difference to the first."""
    rows = (
        Row(
            each.name,
            tuple(each.differences[metric].score(metric, n=0, unit=POINTS) for metric in found.kind.metrics),
        )
        for each in found.models[1:]
    )
    return models_table(rows, found.kind)


def agreement_table(found: ModelComparison) -> Table:
    """Return the rank correlations, models numbered in the heads."""
    rows = (
        Row(
            f"{number}  {result.name}",
            tuple(Score("spearman", value, unit="correlation", note="none") for value in own),
        )
        for number, (result, own) in enumerate(zip(found.models, found.agreement, strict=True), start=1)
    )
    return Table(("Model", *map(str, range(1, len(found.models) + 1))), tuple(rows))


def sweep_page(found: Sweep) -> str:
    """Return the page of a sweep, with the published rows of the data set below ours."""
    name = found.dataset.partition("@")[0]
    return render("sweep", found=found, name=name, table=sweep_table(found).above(published_rows(name, found.kind)))


def sweep_table(found: Sweep) -> Table:
    """Return a row for each combination."""
    metrics = found.kind.metrics
    rows = (score_row(", ".join(cell.settings), cell.means, metrics, note=cell.model) for cell in found.cells)
    return models_table(rows, found.kind, head="Settings")


def transfer_page(cells: Sequence[TransferCell], *, split: str) -> str:
    """Return the page of models judged on data sets."""
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    return render(
        "transfer",
        split=split,
        models=len({cell.model for cell in cells}),
        datasets=datasets,
        matrix=transfer_table(cells),
        sections=[(dataset, _transfer_section(dataset, cells)) for dataset in datasets],
        problems=[cell for cell in cells if cell.problem],
    )


def transfer_table(cells: Sequence[TransferCell]) -> Table:
    """Return AUC of every model (down) on every data set (across); a model's own data set is marked."""
    rows: dict[str, list[str]] = {}
    for cell in cells:
        text = "–" if cell.problem else cell_text(cell.means["auc"])
        rows.setdefault(f"{cell.model}, of {cell.trained_on}", []).append(text if cell.is_transfer else f"{text} ⌂")
    datasets = dict.fromkeys(cell.dataset for cell in cells)
    return Table(("AUC", *datasets), tuple(Row(title, tuple(row)) for title, row in rows.items()))


def _document_scatter(first: ModelResult, other: ModelResult, kind: ScoreKind) -> Markup:
    """Return a dot per document at its leading metric with either model."""
    label = f"{kind.metrics[kind.leading]} of {first.name}"
    level = 50.0 if kind is ScoreKind.LINKS else None
    return scatter(f"{other.name} against {first.name}", first.leading, other.leading, x_label=label, level=level)


def _transfer_section(dataset: str, cells: Iterable[TransferCell]) -> Table | None:
    """Return the scores on one data set, with the published ones; None where no model could be judged on it."""
    name, judged = dataset.partition("@")[0], [cell for cell in cells if cell.dataset == dataset and not cell.problem]
    kinds = [RowKind.BASELINE if cell.is_transfer else RowKind.MODEL for cell in judged]
    rows = [
        score_row(cell.model, cell.means, LINKS, kind, f"trained on {cell.trained_on}")
        for cell, kind in zip(judged, kinds, strict=True)
    ]
    published = [*published_rows(name, table="transfer"), *published_rows(name)]
    return models_table([*rows, *published]) if rows else None
