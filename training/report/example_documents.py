"""Example documents as they are read: from an evaluation or a model, and from the data set's shards.

`examples.py` chooses documents and lays them out; here are their sentences, pictures and concepts.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from schemas.documents import Split
from schemas.features import FeatureColumn, FeatureKind
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.parts import rows_where, split_parts
from training.data.ragged import Floats, Int64
from training.evaluation.evaluate import MatrixEvaluation
from training.report.examples import ExampleDocument, ExampleGroups, choose_examples, main_concepts
from training.similarity.assignment import predicted_pairs

EXAMPLES_EACH = 2


def example_groups(
    evaluation: MatrixEvaluation,
    manifest: Manifest,
    folder: Folder,
    split: Split | str,
    *,
    regions: str | None = None,
    each: int = EXAMPLES_EACH,
) -> ExampleGroups:
    """Return the best, typical and worst documents with their pictures, predicted and true links.

    Args:
        evaluation: of the split.
        manifest: of the data set version.
        folder: of it.
        split: that was evaluated.
        regions: detector whose labels are drawn as concepts; None: none are.
        each: documents of a group.
    """
    auc = evaluation.document_auc
    chosen = choose_examples(auc, each=each)
    names = {name for group in chosen.values() for name in group}
    examples = read_examples(folder, split_parts(manifest, split), names, regions=regions) if names else {}
    for row, name in enumerate(evaluation.ids):
        if name in names:
            matrix, numbers, links = evaluation.matrices[row], evaluation.sentence_numbers[row], evaluation.links[row]
            examples[name] = replace(linked(examples[name], matrix, numbers, links), auc=auc[name])
    return {title: [examples[name] for name in group] for title, group in chosen.items()}


def read_examples(
    folder: Folder, parts: Iterable[tuple[FileEntry, FileEntry]], ids: Collection[str], *, regions: str | None = None
) -> dict[str, ExampleDocument]:
    """Return documents by their ids, with sentences and pictures, and without links.

    Args:
        folder: of the data set version.
        parts: its documents and images parts that are searched for them.
        ids: of the documents.
        regions: detector whose labels are the concepts; None: there are none.
    """
    column = FeatureColumn(name=regions or "", kind=FeatureKind.REGIONS, dimensions=0).column
    columns = ["hash", "jpeg", *([] if regions is None else [f"{column}.list.element.label"])]
    examples: dict[str, ExampleDocument] = {}
    for documents_part, images_part in parts:
        rows = rows_where(folder, documents_part, ["id", "sentences", "images"], sorted(ids))
        hashes = sorted({image["hash"] for row in rows for image in row["images"]})
        pictures = {each["hash"]: each for each in (rows_where(folder, images_part, columns, hashes) if hashes else ())}
        for row in rows:
            images = [pictures[image["hash"]] for image in row["images"]]
            labels = [] if regions is None else [[region["label"] for region in each[column]] for each in images]
            examples[row["id"]] = ExampleDocument(
                id=row["id"],
                sentences=tuple(sentence["text"] for sentence in row["sentences"]),
                images=tuple(each["jpeg"] for each in images),
                concepts=tuple(map(main_concepts, labels)),
            )
    return examples


def linked(example: ExampleDocument, matrix: Floats, sentence_numbers: Int64, links: Int64 | None) -> ExampleDocument:
    """Return a document with the links that a model predicts, and the true ones where they are known.

    Args:
        example: the document.
        matrix: n x m similarities of the sentences that are read and the images.
        sentence_numbers: indices of those n sentences in the document.
        links: L x 2 (row of the matrix, image), or None where they are not known.
    """
    numbers = sentence_numbers.tolist()
    pairs = zip(*predicted_pairs(matrix), strict=True)
    return replace(
        example,
        predicted=tuple((numbers[s], int(i), float(matrix[s, i])) for s, i in pairs),
        links=None if links is None else tuple((numbers[s], i) for s, i in links.tolist()),
    )
