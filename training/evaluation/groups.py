"""The groups of an evaluation's texts: languages, lengths of documents, roles, sources of a fused model, relations.

How groups are scored is in `training.metrics.links` and, of retrieval, `judge.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import read_part, split_parts
from training.data.documents import DocumentSet, TextView
from training.evaluation.evaluate import MatrixEvaluation
from training.metrics.links import LANGUAGE, LENGTH, RELATION, SOURCE, Group, document_groups, length_names, role_groups
from training.model import LinkModel
from training.towers.inputs import text_input

Relations = Mapping[tuple[int, int], Mapping[str, bool | None]]  # of (sentence, image): name -> whether it holds
_RELATION_COLUMNS = (
    "id",
    "links.list.element.sentence",
    "links.list.element.image",
    "links.list.element.relations.list.element.name",
    "links.list.element.relations.list.element.value",
)


def read_relations(manifest: Manifest, folder: Folder, split: Split | str) -> dict[str, Relations]:
    """Return document id -> (sentence, image) -> relations of its links, of a split.

    They are ground truth, which training never reads.
    """
    return {
        row["id"]: {
            (link["sentence"], link["image"]): {item["name"]: item["value"] for item in link["relations"]}
            for link in row["links"] or ()
            if link["relations"]
        }
        for documents, _ in split_parts(manifest, split)
        for row in read_part(folder, documents, _RELATION_COLUMNS).to_pylist()
    }


def link_relations(evaluation: MatrixEvaluation, relations: Mapping[str, Relations]) -> Iterator[Relations]:
    """Yield each document's (row, image) links with their relations, rows counted as the model reads sentences.

    Args:
        evaluation: of the documents.
        relations: of each document by its id, sentences counted as in the document.
    """
    for name, links, numbers in zip(evaluation.ids, evaluation.links, evaluation.sentence_numbers, strict=True):
        pairs = () if links is None else links.tolist()
        yield {(row, image): relations[name].get((int(numbers[row]), image), {}) for row, image in pairs}


def groups_of(
    model: LinkModel, documents: DocumentSet, evaluation: MatrixEvaluation, relations: Sequence[Relations]
) -> Iterator[Group]:
    """Yield the groups of the texts that a model reads; fused texts have sources in place of roles.

    Args:
        model: that was evaluated.
        documents: on which.
        evaluation: of it.
        relations: of each document, as `link_relations` gives them.
    """
    links, counts = evaluation.links, documents.sentences.counts.tolist()
    if documents.languages is not None:
        yield from document_groups(LANGUAGE, documents.languages, links, counts)
    yield from document_groups(LENGTH, length_names(counts), links, counts)
    if documents.sources is not None:
        for column, source in enumerate(TextView.of(model.card.config.reading).roles):
            yield _source_alone(model, documents, evaluation, column, source)
    elif documents.roles is not None:
        yield from role_groups([documents.roles[rows] for rows in documents.sentences], links)
    for relation in sorted({name for own in relations for values in own.values() for name in values}):
        true = [[pair for pair, values in own.items() if values.get(relation)] for own in relations]
        arrays = [np.array(pairs, np.int64).reshape(-1, 2) for pairs in true]
        yield Group(kind=RELATION, name=relation, rows=[known[:, 0] for known in arrays], links=arrays)


def _source_alone(
    model: LinkModel, documents: DocumentSet, evaluation: MatrixEvaluation, column: int, source: str
) -> Group:
    """Return the documents that have a source, each read with all other sources empty, as if it lacked them."""
    rows = [tuple(text if index == column else "" for index, text in enumerate(row)) for row in documents.sources or ()]
    texts = tuple(row[column] for row in rows)
    vectors = model.encode_sentences(text_input(replace(documents, texts=texts, sources=tuple(rows))))
    has_source = [any(text.strip() for text in texts[part]) for part in documents.sentences]
    links = [known if has else None for known, has in zip(evaluation.links, has_source, strict=True)]
    return Group(
        kind=SOURCE,
        name=source,
        rows=[None] * len(documents),
        links=links,
        texts=[vectors[part] for part in documents.sentences],
    )
