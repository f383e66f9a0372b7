"""The page of a relinking: how far given and predicted links agree, with documents in which they differ."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from schemas.documents import GIVEN_LINKS
from schemas.lake import Folder
from schemas.links import PREDICTED_LINKS
from schemas.manifest import Manifest
from schemas.parts import part_name, split_parts
from training.linking.relinked import Agreement, Relinked
from training.report.example_documents import read_examples
from training.report.examples import ExampleDocument, sureness_of
from training.report.pages import documents_page
from training.report.sections import Row, Table


def relinked_page(relinked: Relinked, manifest: Manifest, folder: Folder, *, model: str) -> str:
    """Return the page of a relinking.

    Args:
        relinked: the agreement, and documents that differ.
        manifest: of the data set version.
        folder: of it.
        model: that predicted.
    """
    agreement = relinked.agreement
    differing = tuple(differing_documents(relinked, manifest, folder))
    same = _percent(agreement.same_sentence, agreement.images)
    about = (
        f"Links that the corpus came with, and those of {model}. In {agreement.documents:,} documents that have both, "
        f"{agreement.images:,} images are linked by both, {same} of them to the same sentence. Agreement does not "
        "show which links are right. The documents drawn are a random sample of those that differ."
    )
    groups = {"Where they differ": differing} if differing else {}
    title = f"{manifest.dataset}@{manifest.version}"
    return documents_page(groups, kicker="Given and predicted links", title=title, about=about, table=_table(agreement))


def differing_documents(relinked: Relinked, manifest: Manifest, folder: Folder) -> list[ExampleDocument]:
    """Return the documents that differ with their sentences and pictures, in their random order."""
    rows = {row["id"]: row for _, _, row in relinked.differing}
    paths = {PurePosixPath(path).parts[-2:] for _, path, _ in relinked.differing}
    parts = [
        pair
        for split in sorted({split for split, _ in paths})
        for pair in split_parts(manifest, split)
        if (split, part_name(pair[0])) in paths
    ]
    examples = read_examples(folder, parts, rows)
    return [_example(examples[name], row) for name, row in rows.items()]


def agreement_lines(agreement: Agreement) -> list[str]:
    """Return the agreement as aligned text."""
    if not agreement.documents:
        return ["no document came with links: nothing to compare"]
    return _table(agreement).lines()


def caution_line(trained_on: str, dataset: str) -> str:
    """Return what to know of the probabilities that a model gives in a data set.

    Args:
        trained_on: NAME@VERSION of the model's data.
        dataset: NAME@VERSION of what was linked.
    """
    if trained_on.partition("@")[0] == dataset.partition("@")[0]:
        return (
            f"the model was trained on {trained_on}: its probabilities hold for val and test, and are too high "
            "for documents of its training split"
        )
    return (
        f"the model was trained on {trained_on}, where its probabilities were fitted; they do not hold for {dataset}, "
        "whose links have a word instead: strong, fair or weak"
    )


def _example(example: ExampleDocument, row: Mapping[str, Any]) -> ExampleDocument:
    """Return a document with its predicted links and those that it came with."""
    predicted = row[PREDICTED_LINKS]
    return replace(
        example,
        predicted=tuple((link["sentence"], link["image"], link["similarity"]) for link in predicted),
        sureness=sureness_of((link["probability"], link["word"]) for link in predicted),
        links=tuple((link["sentence"], link["image"]) for link in row[GIVEN_LINKS]),
        is_compared=True,
    )


def _table(agreement: Agreement) -> Table:
    rows = {
        "links": (f"{agreement.given:,}", f"{agreement.predicted:,}"),
        "of them also the other's": (
            _percent(agreement.same, agreement.given),
            _percent(agreement.same, agreement.predicted),
        ),
    }
    if agreement.judged:
        rows[f"of {agreement.judged:,} documents whose true links are known: precision"] = (
            _percent(agreement.true_given, agreement.judged_given),
            _percent(agreement.true_predicted, agreement.judged_predicted),
        )
        rows["recall"] = (
            _percent(agreement.true_given, agreement.true),
            _percent(agreement.true_predicted, agreement.true),
        )
    heads = (f"{agreement.documents:,} documents", "given", "predicted")
    return Table(heads, tuple(Row(name, cells) for name, cells in rows.items()))


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
