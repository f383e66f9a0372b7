"""The model card of a registered version: what a person must know before using it, as Markdown.

It says what is known when a model is registered, and is written anew with the scores when the model has been evaluated
on the data it is for. The reports themselves are kept beside it.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata

from schemas.configs import resolve
from schemas.evaluation import EvaluationRow
from training.evaluation.baselines import Baseline
from training.evaluation.beside import NOSTRUCT
from training.evaluation.rows import EvaluationReport
from training.evaluation.score_kinds import ScoreKind
from training.mlflow.runs import flatten
from training.model import LinkModel

CARD_FILE = "model_card.md"
WHAT = """\
Says which sentence of a document goes with which image: the cosine of a sentence's and an image's vector in one space,
learned from which sentences and images share a document. Both towers are in this one folder, with all that is needed to
use them."""
USE = """\
`multilink link --model {name}` and `multilink serve --model {name}` (both the champion), or
`mlflow.pyfunc.load_model`: given a row a document with `sentences`, `image_vectors` and, where the model reads vectors,
`sentence_vectors`, it returns `similarities` and the predicted `links`. Vectors
of other extractors do not fit; other languages or kinds of document than the training data's were not tried. A
similarity is no probability: it orders the pairs of one document."""
NOT_EVALUATED = """\
Not evaluated yet: `multilink evaluate --report` writes the scores here and the report into `report/` beside this card.
The tag `promotion` says whether it might become champion, and why."""
EVALUATED = """\
On the {split} split of `{dataset}@{version}`, in percent, with 95% bootstrap intervals over documents. The whole report
is in `report/` beside this card; every number is in `report/evaluation.parquet`. The tag `promotion` says whether the
model might become champion, and why."""
OWN = ("links", "pairs")
BESIDE = (NOSTRUCT, *map(str, Baseline))
_METRICS = {metric for kind in ScoreKind for metric in kind.metrics}
PACKAGES = ("torch", "numpy", "scipy", "pyarrow", "lapjv")


def installed_versions() -> dict[str, str]:
    """Return the installed version of each package that a model needs to be used; absent ones are left out."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def model_card(
    model: LinkModel, *, name: str, run_id: str, tags: Mapping[str, str], report: EvaluationReport | None = None
) -> str:
    """Return the card of a registered model.

    Args:
        model: both towers.
        name: registered model.
        run_id: run that trained it.
        tags: of the version.
        report: its evaluation; None: it has not been evaluated.
    """
    config = model.card.config
    environment = {"Python": platform.python_version()} | installed_versions()
    sections = {
        f"# {name}": [WHAT],
        "## Training": _training(model, run_id),
        "## Use": [USE.format(name=name)],
        "## Evaluation": [NOT_EVALUATED] if report is None else _evaluation(report),
        "## Settings": _table(flatten(resolve(config))),
        "## Environment it was registered in": _table(environment),
        "## Tags": _table(tags),
    }
    return "\n".join(line for title, lines in sections.items() for line in (title, "", *lines, ""))


def _training(model: LinkModel, run_id: str) -> list[str]:
    data, config = model.card.data, model.card.config
    reads = f"vectors of {data.sentence_features} ({data.sentence_dimensions} numbers)"
    if data.sentence_dimensions is None:
        reads = f"words ({len(model.vocabulary) if model.vocabulary else 0} in its vocabulary)"
    return [
        f"- Data: `{data.reference}`, manifest SHA-256 `{data.manifest_digest}`.",
        f"- {'Links' if config.objective.reads_links else 'No link'} of the training split"
        f" {'were' if config.objective.reads_links else 'was'} read.",
        f"- Objective: {config.objective.name}, similarity {config.objective.similarity}.",
        f"- Sentences: {reads}.",
        f"- Images: vectors of {data.image_features} ({data.image_dimensions} numbers).",
        f"- Recipe: {config.recipe}, epoch {model.card.epoch} of {config.training.epochs}; run `{run_id}`.",
    ]


def _evaluation(report: EvaluationReport) -> list[str]:
    """Return the mean scores of the model and of what stands beside it, a row a number."""
    about = EVALUATED.format(split=report.split, dataset=report.dataset, version=report.dataset_version)
    rows = [
        f"| {'this model' if row.measure in OWN else row.measure} | {row.metric} | {row.value:.1f} | {_interval(row)} |"
        for row in report.rows
        if row.value is not None and row.metric in _METRICS and row.measure in (*OWN, *BESIDE) and "=" not in row.group
    ]
    return [about, "", "| | score | mean | 95% |", "|---|---|---|---|", *rows]


def _interval(row: EvaluationRow) -> str:
    return "" if row.low is None or row.high is None else f"{row.low:.1f} to {row.high:.1f}"


def _table(rows: Mapping[str, object]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {key} | `{value}` |" for key, value in rows.items())]
