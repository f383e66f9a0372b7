"""A model judged on a split: its link scores and everything else that is measured, each where it applies (SPEC 8).

`MEASURES` names each measure and the function that gives its rows, from functions of `metrics/` over arrays. A measure
that does not apply raises a UsageError that says why; the reason is its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.documents import Split
from schemas.errors import NotFoundError, UsageError
from schemas.evaluation import Score
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.parts import read_part, split_parts
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split
from training.data.ragged import Floats, Int64
from training.data.views import TextView
from training.evaluation.baselines import class_word_vectors, mean_vectors
from training.evaluation.evaluate import (
    DOCUMENT,
    POSITION,
    STANDARD_CONFIG,
    EvaluateConfig,
    Evaluation,
    absent,
    evaluate_embedded,
    read_documents,
    scored_ids,
)
from training.evaluation.position import position_scores
from training.metrics.calibration import Calibration, calibration_scores, fit_calibration, observe
from training.metrics.captions import caption_scores, chosen_captions
from training.metrics.confusion import Choice, choices, confusion_scores, most_confused
from training.metrics.links import (
    RELATION,
    SOURCE,
    Group,
    ScoreKind,
    language_groups,
    link_scores,
    role_groups,
)
from training.metrics.relations import (
    RelationPredictor,
    relation_scores,
)
from training.metrics.retrieval import Adjust, Direction, Pool, linked_pool, retrieval_scores
from training.metrics.spread import analyse_documents, sampling_bias
from training.model import EmbeddedDocument, LinkModel
from training.towers.inputs import text_input

CONFUSED_EXAMPLES = 6
FEWEST_ANALYSED = 3
MODELS_OWN = "the model's own"
RETRIEVAL, REFINED, RELATIONS, ANALYSIS = "retrieval", "refined retrieval", "relations", "analysis"
CALIBRATION, CONFUSION, CAPTIONS, BIAS = "calibration", "confusion", "captions", "sampling bias"
Relations = Mapping[tuple[int, int], Mapping[str, bool | None]]
_RELATION_COLUMNS = (
    "id",
    "links.list.element.sentence",
    "links.list.element.image",
    "links.list.element.relations.list.element.name",
    "links.list.element.relations.list.element.value",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfusedImages:
    """A sentence whose true image was taken for one that looks like it: content hashes and the cosine of the two."""

    document: str
    sentence: str
    image: str
    chosen: str
    nearness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A model judged on a split.

    Attributes:
        evaluation: link scores, document by document.
        rows: every number.
        calibration: of similarities as probabilities, fitted on validation links; None where there is none.
        confused: the most alike images that were confused.
    """

    evaluation: Evaluation
    rows: tuple[Score, ...]
    calibration: Calibration | None = None
    confused: tuple[ConfusedImages, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is judged: a model on a split, its documents embedded and their links scored."""

    model: LinkModel
    lake: Lake
    manifest: Manifest
    folder: Folder
    split: str
    documents: DocumentSet
    embedded: tuple[EmbeddedDocument, ...]
    evaluation: Evaluation
    config: EvaluateConfig

    @property
    def reference(self) -> str:
        return f"{self.manifest.dataset}@{self.manifest.version}"

    def image_vectors(self, position: int) -> Floats:
        """Return the data set's vectors of a document's images, m x v."""
        return self.documents.image_bank[self.documents.image_rows[self.documents.images.rows(position)]]

    def pool(self, links: Iterable[Int64 | None], texts: Iterable[Floats] | None = None) -> Pool:
        """Return some linked texts and their images, to retrieve one by the other."""
        own = [each.texts for each in self.embedded] if texts is None else list(texts)
        images = [each.images for each in self.embedded]
        return linked_pool(self.documents, own, images, list(links), are_distinct=self.config.distinct_images)

    def retrieval(self, pool: Pool, *, adjust: Adjust | None = None, has_samples: bool = True) -> list[Score]:
        """Return retrieval in a pool, in both directions; of refined similarities, an image for a text alone."""
        return retrieval_scores(
            pool,
            directions=tuple(Direction) if adjust is None else [Direction.TEXT_TO_IMAGE],
            sample_pairs=self.config.sample_pairs,
            samples=self.config.samples if has_samples else 0,
            adjust=adjust,
        )

    @cached_property
    def predictor(self) -> RelationPredictor:
        return RelationPredictor.of(self.model)

    @cached_property
    def relations(self) -> dict[str, Relations]:
        """Return document id -> (sentence, image) -> relations of its links."""
        return read_relations(self.manifest, self.folder, self.split)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return tuple(_groups(self))

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        if not self.documents.image_bank.shape[1]:
            raise UsageError("the data set has no vectors of its images")
        vectors = [self.image_vectors(position) for position in range(len(self.documents))]
        return choices(self.evaluation.matrices, self.evaluation.links, vectors)

    @cached_property
    def calibration(self) -> Calibration | UsageError:
        """Return the calibration on the validation split, or why there is none."""
        if self.split == Split.VAL:
            return UsageError("it is fitted on the validation split, which is the one that is judged here")
        try:
            return calibrate(self.model, self.lake, self.reference)
        except UsageError as problem:
            return problem


def judge_model(
    model: LinkModel,
    lake: Lake,
    reference: str,
    split: Split | str = Split.TEST,
    *,
    config: EvaluateConfig = STANDARD_CONFIG,
    with_captions: bool = False,
) -> Judged:
    """Return everything there is to measure of a model on a split of `NAME[@VERSION]`.

    Args:
        model: to be judged.
        lake: holds the data set.
        reference: data set and version.
        split: whose documents are scored.
        config: how retrieval is measured.
        with_captions: whether caption metrics are computed; METEOR starts a Java program of its own.

    Raises:
        NotFoundError: the data set, version or split is not there.
        UsageError: the data set lacks what the model reads, or nothing of it is known to be linked.
    """
    manifest, folder = read_manifest(lake, reference)
    documents = read_documents(model, lake, reference, split)
    embedded = tuple(model.embed(documents))
    subject = Subject(
        model=model,
        lake=lake,
        manifest=manifest,
        folder=folder,
        split=str(split),
        documents=documents,
        embedded=embedded,
        evaluation=evaluate_embedded(documents, embedded, where=f"{reference}, split {split}"),
        config=config,
    )
    rows = list(subject.evaluation.rows())
    for measure, compute in MEASURES.items():
        try:
            if measure == CAPTIONS and not with_captions:
                raise UsageError("not asked for (--captions)")
            rows += [replace(row, measure=row.measure or measure) for row in compute(subject)]
        except UsageError as problem:
            rows.append(absent(measure, problem))
    return Judged(
        evaluation=subject.evaluation,
        rows=tuple(rows),
        calibration=None if isinstance(subject.calibration, UsageError) else subject.calibration,
        confused=tuple(_confused(documents, choice) for choice in _shown_choices(subject)),
    )


def calibrate(model: LinkModel, lake: Lake, reference: str) -> Calibration:
    """Return the calibration of a model on the validation split of `NAME[@VERSION]`.

    Raises:
        UsageError: there is no validation document with known links, or nothing was predicted in them.
    """
    try:
        documents = read_documents(model, lake, reference, Split.VAL)
    except NotFoundError as problem:
        raise UsageError(f"{reference} has no validation split to calibrate on") from problem
    if documents.links is None or all(known is None for known in documents.links):
        raise UsageError(f"{reference}: no validation document has known links to calibrate on")
    seen = observe(model.similarities(documents), documents.links)
    if not len(seen):
        raise UsageError(f"{reference}: no link was predicted in a validation document with an unlinked pair")
    return fit_calibration(seen, dataset=reference, split=str(Split.VAL))


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


def read_pictures(
    manifest: Manifest, folder: Folder, split: Split | str, hashes: Iterable[str]
) -> dict[str, bytes | None]:
    """Return content hash -> JPEG of some images of a split; None where only vectors are kept."""
    found: dict[str, bytes | None] = {}
    wanted = pa.array(sorted(set(hashes)), pa.string())
    for _, images in split_parts(manifest, split) if len(wanted) else ():
        table = read_part(folder, images, ["hash", "jpeg"])
        rows = table.filter(pc.is_in(table.column("hash"), value_set=wanted)).to_pylist()
        found |= {row["hash"]: row["jpeg"] for row in rows}
    return found


def _retrieval(subject: Subject) -> Iterator[Score]:
    """Yield retrieval among all linked texts and images, then that of each group in a pool of its own."""
    pool = subject.pool(subject.evaluation.links)
    if not len(pool.pairs):
        raise UsageError("no text and image are known to be linked")
    yield from subject.retrieval(pool)
    for group in subject.groups:
        found = subject.retrieval(subject.pool(group.links, group.texts), has_samples=False)
        yield from (replace(score, group=f"{group.title}, {score.group}") for score in found)


def _refined(subject: Subject) -> Iterable[Score]:
    refinement = subject.config.refinement.of(subject.predictor, subject.manifest.dataset)
    return subject.retrieval(subject.pool(subject.evaluation.links), adjust=refinement)


def _relations(subject: Subject) -> Iterable[Score]:
    names = subject.predictor.names
    labels, texts, images = [], [], []
    for known, vectors in zip(_relation_labels(subject), subject.embedded, strict=True):
        for (sentence, image), given in known.items():
            values = [given.get(name) for name in names]
            if any(value is not None for value in values):
                labels.append([np.nan if value is None else float(value) for value in values])
                texts.append(vectors.texts[sentence])
                images.append(vectors.images[image])
    if not labels:
        raise UsageError("no link has a relation that the model predicts")
    return relation_scores(subject.predictor.pairs(np.stack(texts), np.stack(images)), np.array(labels), names)


def _relation_labels(subject: Subject) -> Iterator[Relations]:
    """Yield each document's (row, image) links with their relations, rows counted as the model reads sentences."""
    evaluation = subject.evaluation
    for name, links, numbers in zip(evaluation.ids, evaluation.links, evaluation.sentence_numbers, strict=True):
        pairs = () if links is None else links.tolist()
        own = subject.relations[name]
        yield {(row, image): own.get((int(numbers[row]), image), {}) for row, image in pairs}


def _group_scores(subject: Subject) -> Iterator[Score]:
    """Yield link scores by language and role; of a relation or a source alone, retrieval says more."""
    for group in subject.groups:
        if group.kind not in (RELATION, SOURCE):
            found = link_scores(group, subject.evaluation.matrices)
            yield from (replace(score, group=group.title, measure=ScoreKind.LINKS) for score in found)


def _groups(subject: Subject) -> Iterator[Group]:
    """Yield the groups of a subject's texts; fused texts have sources in place of roles."""
    documents, links = subject.documents, subject.evaluation.links
    counts = documents.sentences.counts.tolist()
    if documents.languages is not None:
        yield from language_groups(documents.languages, links, counts)
    if documents.sources is not None:
        for column, source in enumerate(TextView.of(subject.model.card.config).roles):
            yield _source_alone(subject, column, source)
    elif documents.roles is not None:
        yield from role_groups([documents.roles[rows] for rows in documents.sentences], links)
    labels = list(_relation_labels(subject))
    for relation in sorted({name for own in labels for given in own.values() for name in given}):
        true = [[pair for pair, given in own.items() if given.get(relation)] for own in labels]
        arrays = [np.array(pairs, np.int64).reshape(-1, 2) for pairs in true]
        yield Group(kind=RELATION, name=relation, rows=[known[:, 0] for known in arrays], links=arrays)


def _source_alone(subject: Subject, column: int, source: str) -> Group:
    """Return the documents that have a source, each read with all other sources empty, as if it lacked them."""
    documents = subject.documents
    rows = [tuple(text if index == column else "" for index, text in enumerate(row)) for row in documents.sources or ()]
    texts = tuple(row[column] for row in rows)
    vectors = subject.model.encode_sentences(text_input(replace(documents, texts=texts, sources=tuple(rows))))
    has_source = [any(text.strip() for text in texts[part]) for part in documents.sentences]
    links = [known if has else None for known, has in zip(subject.evaluation.links, has_source, strict=True)]
    return Group(
        kind=SOURCE,
        name=source,
        rows=[None] * len(documents),
        links=links,
        texts=[vectors[part] for part in documents.sentences],
    )


def _analysis(subject: Subject) -> Iterator[Score]:
    """Yield spread of the scored documents, and its regressions, by the data set's own vectors where it has any."""
    scores = subject.evaluation.scores
    if len(scores) < FEWEST_ANALYSED:
        raise UsageError("fewer than three documents could be scored")
    images: list[Floats] = [subject.embedded[position].images for position in scores.documents]
    texts: list[Floats] = [subject.embedded[position].texts for position in scores.documents]
    image_name = text_name = MODELS_OWN
    if subject.documents.image_bank.shape[1]:
        image_name = subject.model.card.data.image_features or image_name
        images = [subject.image_vectors(position) for position in scores.documents]
    held = _with_sentence_vectors(subject)
    if held is not None:
        text_name, vectors = held
        texts = [vectors[position] for position in scores.documents]
    spreads, regressions = analyse_documents(scores.table()[:, 0], images, texts)
    note = f"images: {image_name}; sentences: {text_name}"
    yield from (replace(score, measure=ANALYSIS, note=note) for score in regressions)
    for document, values in zip(scored_ids(subject.evaluation, scores), spreads.tolist(), strict=True):
        for metric, value in zip(("image_spread", "text_spread"), values, strict=True):
            yield Score(metric, value, n=1, group=document, measure=DOCUMENT, unit="squared distance", note=note)


def _bias(subject: Subject) -> Iterable[Score]:
    """Return the distances of negatives in evaluation and in training, by the data set's image vectors."""
    if not subject.documents.image_bank.shape[1]:
        raise UsageError("the data set has no vectors of its images")
    vectors = [subject.image_vectors(position) for position in range(len(subject.documents))]
    found = sampling_bias(vectors, subject.evaluation.links)
    if not found:
        raise UsageError("no linked image has a negative both in its document and in another one")
    return found


def _with_sentence_vectors(subject: Subject) -> tuple[str, list[Floats]] | None:
    """Return the name of, and each document's, sentence vectors the model reads, else of any the data set has.

    With `spread_words`, they are means of word vectors.
    """
    config, documents = subject.config, subject.documents
    if config.spread_words:
        known = class_word_vectors(config.word_vectors, documents, dimensions=config.word_dimensions)
        means = mean_vectors(documents.texts, known, dimensions=config.word_dimensions)
        return f"mean of {config.word_vectors}", [means[rows] for rows in documents.sentences]
    held, name = subject.documents, subject.model.card.data.sentence_features
    sentences = subject.manifest.extractors("documents")
    if held.sentence_vectors is None and sentences:
        name = min(sentences)
        held = read_split(subject.manifest, subject.folder, subject.split, Columns(sentences=name))
    if held.sentence_vectors is None or name is None:
        return None
    return name, [held.sentence_vectors[rows] for rows in held.sentences]


def _calibration(subject: Subject) -> Iterable[Score]:
    """Return how the calibration on validation does on the judged split."""
    seen = observe(subject.evaluation.matrices, subject.evaluation.links)
    if not len(seen):
        raise UsageError("no link was predicted in a document with known links and an unlinked pair")
    fitted = subject.calibration
    if isinstance(fitted, UsageError):
        raise fitted
    note = f"{fitted.method}, {fitted.links} links of {fitted.split}"
    return (replace(score, note=score.note or note) for score in calibration_scores(fitted, seen))


def _confusion(subject: Subject) -> Iterable[Score]:
    return confusion_scores(subject.choices)


def _shown_choices(subject: Subject) -> tuple[Choice, ...]:
    has_vectors = subject.documents.image_bank.shape[1] > 0
    return most_confused(subject.choices, max_count=CONFUSED_EXAMPLES) if has_vectors else ()


def _confused(documents: DocumentSet, choice: Choice) -> ConfusedImages:
    shown = documents.image_rows[documents.images.rows(choice.document)]
    sentence = documents.sentences.offsets[choice.document] + choice.sentence
    image, chosen = (documents.image_hashes[shown[index]] for index in (choice.image, choice.nearest))
    return ConfusedImages(
        document=documents.ids[choice.document],
        sentence=documents.texts[sentence],
        image=image,
        chosen=chosen,
        nearness=choice.nearness,
    )


def _position(subject: Subject) -> Iterable[Score]:
    """Return the ablation with places; nothing where it was not asked for."""
    if not subject.config.position:
        return ()
    return position_scores(subject.model, subject.manifest, subject.folder, subject.documents, subject.embedded)


def _captions(subject: Subject) -> Iterable[Score]:
    texts = [subject.documents.texts[rows] for rows in subject.documents.sentences]
    return caption_scores(chosen_captions(subject.evaluation.matrices, subject.evaluation.links, texts))


MEASURES: Mapping[str, Callable[[Subject], Iterable[Score]]] = {
    POSITION: _position,
    "groups": _group_scores,
    RETRIEVAL: _retrieval,
    REFINED: _refined,
    RELATIONS: _relations,
    ANALYSIS: _analysis,
    BIAS: _bias,
    CALIBRATION: _calibration,
    CONFUSION: _confusion,
    CAPTIONS: _captions,
}
