"""The model card of a registered version: what a person must know before using it, as Markdown.

It says what is known when a model is registered. How well it links is in the evaluation reports, which are kept beside
it later, and in the metrics of its run.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata

from schemas.configs import resolve
from training.model import LinkModel
from training.tracking import flatten

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
EVALUATION = """\
Once the model was evaluated, its scores on the test split are metrics of its run, with intervals, and its report is in
`report/` beside this card. The tag `promotion` says whether it might become champion, and why."""
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


def model_card(model: LinkModel, *, name: str, run_id: str, tags: Mapping[str, str]) -> str:
    """Return the card of a model that is being registered.

    Args:
        model: both towers.
        name: registered model.
        run_id: run that trained it.
        tags: of the version.
    """
    config = model.card.config
    environment = {"Python": platform.python_version()} | installed_versions()
    sections = {
        f"# {name}": [WHAT],
        "## Training": _training(model, run_id),
        "## Use": [USE.format(name=name)],
        "## Evaluation": [EVALUATION],
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
        "- No link of the training split was read.",
        f"- Objective: {config.objective.name}, similarity {config.objective.similarity}.",
        f"- Sentences: {reads}.",
        f"- Images: vectors of {data.image_features} ({data.image_dimensions} numbers).",
        f"- Recipe: {config.recipe}, epoch {model.card.epoch} of {config.training.epochs}; run `{run_id}`.",
    ]


def _table(rows: Mapping[str, object]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {key} | `{value}` |" for key, value in rows.items())]
