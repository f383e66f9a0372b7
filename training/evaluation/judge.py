"""A model judged on a split: its link scores and everything else that is measured, each where it applies (SPEC 8).

`MEASURES` names each measure and the function that gives its rows, from functions of `metrics/` over arrays. A measure
that does not apply raises a UsageError with the reason, which becomes its row.

Texts have groups: languages, lengths of documents, roles, sources of a fused model, relations.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from schemas.documents import Split
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest
from schemas.messages import NotFoundError, UsageError
from schemas.parts import read_part, split_parts
from training.data.documents import DocumentSet, TextView
from training.data.lake import Columns, read_split
from training.data.ragged import Floats, Int64
from training.evaluation.baselines import class_word_vectors, mean_vectors
from training.evaluation.decoys import ENOUGH, broken_pairs, words_of
from training.evaluation.evaluate import (
    LEFT_OUT,
    NOT_SAMPLED,
    POSITION,
    STANDARD_CONFIG,
    EvaluateConfig,
    MatrixEvaluation,
    absent,
    evaluate_embedded,
)
from training.evaluation.models import read_sampled
from training.evaluation.position import position_scores
from training.metrics.calibration import Calibration, calibration_scores, fit_calibration, observe
from training.metrics.intervals import Score
from training.metrics.links import (
    LANGUAGE,
    LENGTH,
    RELATION,
    SOURCE,
    Group,
    ScoreKind,
    document_groups,
    length_names,
    link_scores,
    role_groups,
)
from training.metrics.relations import RelationPredictor, relation_scores
from training.metrics.retrieval import Adjust, Direction, Pool, linked_pool, retrieval_scores
from training.metrics.spread import analyse_documents
from training.model import EmbeddedDocument, LinkModel
from training.shards import embed_split
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


FEWEST_ANALYSED = 3
MODELS_OWN = "the model's own"
RETRIEVAL, REFINED, RELATIONS, ANALYSIS = "retrieval", "refined retrieval", "relations", "analysis"
CALIBRATION, DECOYS = "calibration", "decoys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A model judged on a split.

    Attributes:
        evaluation: link scores, document by document.
        rows: every number.
        calibration: of similarities as probabilities, fitted on validation links; None where there is none.
    """

    evaluation: MatrixEvaluation
    rows: tuple[Score, ...]
    calibration: Calibration | None = None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model on a split that is judged: its documents embedded and their links scored."""

    model: LinkModel
    lake: Lake
    manifest: Manifest
    folder: Folder
    split: str
    documents: DocumentSet
    embedded: tuple[EmbeddedDocument, ...]
    evaluation: MatrixEvaluation
    config: EvaluateConfig

    @property
    def reference(self) -> str:
        return f"{self.manifest.dataset}@{self.manifest.version}"

    @cached_property
    def image_vectors(self) -> list[Floats]:
        """Return the data set's vectors of each document's images, m x v.

        Raises:
            UsageError: it has none.
        """
        bank = self.documents.image_bank
        if not bank.shape[1]:
            raise UsageError("the data set has no vectors of its images")
        return [bank[self.documents.image_rows[rows]] for rows in self.documents.images]

    def pool(self, links: Sequence[Int64 | None], texts: Sequence[Floats] | None = None) -> Pool:
        """Return some linked texts and their images, to retrieve one by the other; `texts` stand for the model's."""
        embedded = self.embedded
        if texts is not None:
            embedded = tuple(replace(each, texts=own) for each, own in zip(embedded, texts, strict=True))
        return linked_pool(self.documents, embedded, links, are_distinct=self.config.distinct_images)

    def retrieval(self, pool: Pool, *, adjust: Adjust | None = None, has_samples: bool = True) -> list[Score]:
        """Return retrieval in a pool, in both directions; by refined similarities, of an image for a text alone."""
        return retrieval_scores(
            pool,
            directions=tuple(Direction) if adjust is None else [Direction.TEXT_TO_IMAGE],
            sample_pairs=self.config.sample_pairs,
            samples=self.config.samples if has_samples else 0,
            adjust=adjust,
        )

    @cached_property
    def relations(self) -> list[Relations]:
        """Return each document's (row, image) links with their relations."""
        return list(link_relations(self.evaluation, read_relations(self.manifest, self.folder, self.split)))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return tuple(groups_of(self.model, self.documents, self.evaluation, self.relations))

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
    needs_links: bool = True,
) -> Judged:
    """Return everything there is to measure of a model on a split of `NAME[@VERSION]`.

    Args:
        model: to be judged.
        lake: holds the data set.
        reference: data set and version.
        split: whose documents are scored.
        config: how retrieval is measured.
        needs_links: whether a split of which nothing is known to be linked is an error; else what needs no link is
            measured.

    Raises:
        NotFoundError: the data set, version or split is not there.
        UsageError: the data set lacks what the model reads, or links that are needed.
    """
    manifest, folder = read_sampled(lake, reference, config)
    documents, embedded = embed_split(model, manifest, folder, split)
    subject = Subject(
        model=model,
        lake=lake,
        manifest=manifest,
        folder=folder,
        split=str(split),
        documents=documents,
        embedded=tuple(embedded),
        evaluation=evaluate_embedded(documents, embedded, where=f"{reference}, split {split}", needs_links=needs_links),
        config=config,
    )
    rows = list(subject.evaluation.rows())
    if beyond := manifest.splits[str(split)].documents - sum(part.rows for part in manifest.parts("documents", split)):
        rows.append(
            Score(LEFT_OUT, float(beyond), n=beyond, group=NOT_SAMPLED, measure=ScoreKind.LINKS, unit="documents")
        )
    for measure, compute in MEASURES.items():
        try:
            rows += [replace(row, measure=row.measure or measure) for row in compute(subject)]
        except UsageError as problem:
            rows.append(absent(measure, problem))
    return Judged(
        evaluation=subject.evaluation,
        rows=tuple(rows),
        calibration=None if isinstance(subject.calibration, UsageError) else subject.calibration,
    )


def calibrate(model: LinkModel, lake: Lake, reference: str) -> Calibration:
    """Return the calibration of a model on the validation split of `NAME[@VERSION]`.

    Raises:
        UsageError: there is no validation document with known links, or nothing was predicted in them.
    """
    try:
        documents, vectors = embed_split(model, *read_sampled(lake, reference, STANDARD_CONFIG), Split.VAL)
    except NotFoundError as problem:
        raise UsageError(f"{reference} has no validation split to calibrate on") from problem
    if documents.links is None or all(known is None for known in documents.links):
        raise UsageError(f"{reference}: no validation document has known links to calibrate on")
    observed = observe([each.similarities() for each in vectors], documents.links)
    if not len(observed):
        raise UsageError(f"{reference}: no link was predicted in a validation document with an unlinked pair")
    return fit_calibration(observed, dataset=reference, split=str(Split.VAL))


def _retrieval(subject: Subject) -> Iterator[Score]:
    """Yield retrieval among all linked texts and images, then that of each group in a pool of its own."""
    pool = subject.pool(subject.evaluation.links)
    if not len(pool.pairs):
        raise UsageError("no text and image are known to be linked")
    yield from subject.retrieval(pool)
    for group in subject.groups:
        if group.kind == LENGTH:
            continue
        scores = subject.retrieval(subject.pool(group.links, group.texts), has_samples=False)
        yield from (replace(score, group=f"{group.title}, {score.group}") for score in scores)


def _refined(subject: Subject) -> Iterable[Score]:
    return subject.retrieval(subject.pool(subject.evaluation.links), adjust=subject.config.refine.of(subject.model))


def _relations(subject: Subject) -> Iterable[Score]:
    predictor = RelationPredictor.of(subject.model)
    labels, texts, images = [], [], []
    for known, vectors in zip(subject.relations, subject.embedded, strict=True):
        for (sentence, image), values in known.items():
            values_of = [values.get(name) for name in predictor.names]
            if any(value is not None for value in values_of):
                labels.append([np.nan if value is None else float(value) for value in values_of])
                texts.append(vectors.texts[sentence])
                images.append(vectors.images[image])
    if not labels:
        raise UsageError("no link has a relation that the model predicts")
    return relation_scores(predictor.pairs(np.stack(texts), np.stack(images)), np.array(labels), predictor.names)


def _group_scores(subject: Subject) -> Iterator[Score]:
    """Yield link scores by language, length and role; a relation or a source alone is better measured by retrieval."""
    for group in subject.groups:
        if group.kind not in (RELATION, SOURCE):
            scores = link_scores(group, subject.evaluation.matrices)
            yield from (replace(score, group=group.title, measure=ScoreKind.LINKS) for score in scores)


def _analysis(subject: Subject) -> Iterator[Score]:
    """Yield what the spread and content of the scored documents explain, by the data set's own vectors, if any."""
    scores = subject.evaluation.scores
    if len(scores) < FEWEST_ANALYSED:
        raise UsageError("fewer than three documents could be scored")
    images: list[Floats] = [subject.embedded[position].images for position in scores.documents]
    texts: list[Floats] = [subject.embedded[position].texts for position in scores.documents]
    image_name = text_name = MODELS_OWN
    if subject.documents.image_bank.shape[1]:
        image_name = subject.model.card.data.image_features or image_name
        images = [subject.image_vectors[position] for position in scores.documents]
    named_vectors = _sentence_vectors(subject)
    if named_vectors is not None:
        text_name, vectors = named_vectors
        texts = [vectors[position] for position in scores.documents]
    note = f"images: {image_name}; sentences: {text_name}"
    for score in analyse_documents(scores.table[:, 0], images, texts):
        yield replace(score, measure=ANALYSIS, note=note)


def _sentence_vectors(subject: Subject) -> tuple[str, list[Floats]] | None:
    """Return the name of, and each document's, sentence vectors the model reads, else of any the data set has.

    With `spread_words`, they are means of word vectors.
    """
    config, documents = subject.config, subject.documents
    if config.spread_words:
        word_vectors = class_word_vectors(config.word_vectors, documents, dimensions=config.word_dimensions)
        means = mean_vectors(documents.texts, word_vectors, dimensions=config.word_dimensions)
        return f"mean of {config.word_vectors}", [means[rows] for rows in documents.sentences]
    name, others = subject.model.card.data.sentence_features, subject.manifest.extractors("documents")
    if documents.sentence_vectors is None and others:
        name = min(others)
        documents = read_split(subject.manifest, subject.folder, subject.split, Columns(sentences=name))
    if documents.sentence_vectors is None or name is None:
        return None
    return name, [documents.sentence_vectors[rows] for rows in documents.sentences]


def _calibration(subject: Subject) -> Iterable[Score]:
    """Return how the calibration on validation does on the judged split."""
    observed = observe(subject.evaluation.matrices, subject.evaluation.links)
    if not len(observed):
        raise UsageError("no link was predicted in a document with known links and an unlinked pair")
    fitted = subject.calibration
    if isinstance(fitted, UsageError):
        raise fitted
    note = f"by similarity, soft plan and margin; {fitted.links} links of {fitted.split}"
    return (replace(score, note=score.note or note) for score in calibration_scores(fitted, observed))


def _decoys(subject: Subject) -> Iterator[Score]:
    """Yield an estimate of the false links, where no link is known."""
    if any(known is not None for known in subject.documents.links or ()):
        return
    decoys = broken_pairs(subject.documents, subject.embedded[:ENOUGH])
    estimate = decoys.false_percent
    if estimate is None:
        raise UsageError(decoys.line())
    score = Score("false_links", estimate.mean, estimate.low, estimate.high, n=decoys.pairs)
    yield replace(score, group="pairs swapped between documents", note=words_of(estimate, decoys.pairs))


def _position(subject: Subject) -> Iterable[Score]:
    """Return the ablation with places; nothing unless the settings want it."""
    if not subject.config.position:
        return ()
    return position_scores(subject.model, subject.manifest, subject.folder, subject.documents, subject.embedded)


MEASURES: Mapping[str, Callable[[Subject], Iterable[Score]]] = {
    POSITION: _position,
    "groups": _group_scores,
    RETRIEVAL: _retrieval,
    REFINED: _refined,
    RELATIONS: _relations,
    ANALYSIS: _analysis,
    CALIBRATION: _calibration,
    DECOYS: _decoys,
}
