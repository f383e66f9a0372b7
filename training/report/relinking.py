"""The page of a relinking: how far given and predicted links agree, with documents in which they differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from schemas.documents import GIVEN_LINKS
from schemas.lake import Folder
from schemas.links import PREDICTED_LINKS
from schemas.manifest import Manifest
from schemas.parts import part_name, split_parts
from training.linking.relinked import Agreement, Relinked
from training.report.example_documents import rows_of
from training.report.examples import ExampleDocument, ExampleGroup
from training.report.pages import shown_page
from training.report.sections import Row, Table


def relinked_page(relinked: Relinked, manifest: Manifest, folder: Folder, *, model: str) -> str:
    """Return the page of a relinking.

    Args:
        relinked: what came of it.
        manifest: of the data set version.
        folder: of it.
        model: that predicted.
    """
    agreement = relinked.agreement
    shown = tuple(differing_documents(relinked, manifest, folder))
    agreed = _percent(agreement.same_sentence, agreement.images)
    about = (
        f"Links that the corpus came with, and those of {model}. In {agreement.documents:,} documents that have both, "
        f"{agreement.images:,} images are linked by both, {agreed} of them to the same sentence. Agreement does not "
        "say who is right. The documents drawn are a random sample of those that differ."
    )
    groups = [ExampleGroup("Where they differ", shown)] if shown else []
    title = f"{manifest.dataset}@{manifest.version}"
    return shown_page(groups, kicker="Given and predicted links", title=title, about=about, table=_table(agreement))


def differing_documents(relinked: Relinked, manifest: Manifest, folder: Folder) -> list[ExampleDocument]:
    """Return the documents that differ with their sentences and pictures, in their random order."""
    found: dict[str, ExampleDocument] = {}
    by_part: dict[str, dict[str, Mapping[str, Any]]] = {}
    for _, path, row in relinked.differing:
        by_part.setdefault(path, {})[row["id"]] = row
    for path, rows in by_part.items():
        split, name = PurePosixPath(path).parts[-2:]
        parts = next(pair for pair in split_parts(manifest, split) if part_name(pair[0]) == name)
        documents = rows_of(folder, parts[0], ["id", "sentences", "images"], set(rows))
        hashes = {image["hash"] for document in documents for image in document["images"]}
        pictures = {row["hash"]: row["jpeg"] for row in rows_of(folder, parts[1], ["hash", "jpeg"], hashes)}
        for document in documents:
            found[document["id"]] = _example(document, rows[document["id"]], pictures)
    return [found[row["id"]] for _, _, row in relinked.differing]


def agreement_lines(agreement: Agreement) -> list[str]:
    """Return the agreement in words."""
    if not agreement.documents:
        return ["no document came with links: nothing to compare"]
    return _table(agreement).lines()


def _example(document: Mapping[str, Any], row: Mapping[str, Any], pictures: Mapping[str, bytes]) -> ExampleDocument:
    predicted = row[PREDICTED_LINKS]
    return ExampleDocument(
        id=document["id"],
        auc=None,
        sentences=tuple(sentence["text"] for sentence in document["sentences"]),
        images=tuple(pictures.get(image["hash"]) for image in document["images"]),
        predicted=tuple((link["sentence"], link["image"], link["similarity"]) for link in predicted),
        probabilities=tuple(link["probability"] for link in predicted if link["probability"] is not None),
        links=tuple((link["sentence"], link["image"]) for link in row[GIVEN_LINKS]),
        is_compared=True,
    )


def _table(found: Agreement) -> Table:
    rows = {
        "links": (f"{found.given:,}", f"{found.predicted:,}"),
        "of them also the other's": (_percent(found.same, found.given), _percent(found.same, found.predicted)),
    }
    if found.judged:
        rows[f"of {found.judged:,} documents whose true links are known: precision"] = (
            _percent(found.true_given, found.judged_given),
            _percent(found.true_predicted, found.judged_predicted),
        )
        rows["recall"] = _percent(found.true_given, found.true), _percent(found.true_predicted, found.true)
    heads = (f"{found.documents:,} documents", "given", "predicted")
    return Table(heads, tuple(Row(name, cells) for name, cells in rows.items()))


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
