"""Everything an evaluation measures beside link scores, each where it applies, and why where not (SPEC 8).

`judge_model` puts the measures together; each of them is a module of plain functions. How they become a table is
`rows.py`'s, how they are drawn `measure_parts.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.documents import Split
from schemas.errors import NotFoundError, UsageError
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split
from training.evaluation.analysis import DocumentAnalysis, analyse_documents
from training.evaluation.breakdowns import GroupScores, by_language, by_role
from training.evaluation.calibration import CalibrationJudgement, fit_calibration, judge_calibration, observe
from training.evaluation.captions import CaptionScores, ChosenCaption, caption_scores, chosen_captions
from training.evaluation.confusion import Choice, ConfusionGroup, choices, confusion_groups, most_confused
from training.evaluation.evaluate import Evaluation, embedded_pool, evaluate_embedded, read_documents
from training.evaluation.facts import read_relations
from training.evaluation.relation_head import refinement, relation_predictor
from training.evaluation.relations import RelationScore, relation_scores
from training.evaluation.retrieval import Direction, Pool, RetrievalScores, retrieval_scores
from training.evaluation.retrieval_groups import GroupRetrieval, retrieval_groups
from training.linking.calibration import Calibration
from training.model import EmbeddedDocument, LinkModel

CONFUSED_EXAMPLES = 6
FEWEST_ANALYSED = 3
Vectors = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfusedImages:
    """A sentence whose true image was taken for one that looks like it: content hashes and the cosine of the two."""

    document: str
    sentence: str
    image: str
    chosen: str
    nearness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What was measured; empty or None where a measure does not apply.

    Attributes:
        retrieval: over the whole pool and over samples, both directions.
        relations: average precision of each predicted relation.
        refined: text-to-image retrieval after selective similarity refinement.
        groups: link scores by language and by role, where there are several.
        retrieval_groups: retrieval by language, by role, and by source of a fused model, where there are several.
        analysis: spread and content against AUC.
        confusion: choices among images that look alike.
        confused: the most alike images that were confused.
        calibration: of similarities as probabilities, fitted on validation links.
        captions: metrics of the sentence chosen for each image.
        absent: measure -> why it is not there.
    """

    retrieval: tuple[RetrievalScores, ...] = ()
    relations: tuple[RelationScore, ...] = ()
    refined: tuple[RetrievalScores, ...] = ()
    groups: tuple[GroupScores, ...] = ()
    retrieval_groups: tuple[GroupRetrieval, ...] = ()
    analysis: DocumentAnalysis | None = None
    confusion: tuple[ConfusionGroup, ...] = ()
    confused: tuple[ConfusedImages, ...] = ()
    calibration: CalibrationJudgement | None = None
    captions: CaptionScores | None = None
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """A model judged on a split: link scores, and everything else."""

    evaluation: Evaluation
    measures: Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What is judged: a model on a split, its documents embedded and their links scored."""

    model: LinkModel
    manifest: Manifest
    folder: Folder
    split: str
    documents: DocumentSet
    embedded: tuple[EmbeddedDocument, ...]
    evaluation: Evaluation

    @property
    def reference(self) -> str:
        return f"{self.manifest.dataset}@{self.manifest.version}"

    def image_vectors(self, place: int) -> Vectors:
        """Return the data set's vectors of a document's images, m x v."""
        return self.documents.image_bank[self.documents.image_rows[self.documents.images.rows(place)]]


def judge_model(
    model: LinkModel, lake: Lake, reference: str, split: Split | str = Split.TEST, *, with_captions: bool = False
) -> Judged:
    """Return everything there is to measure of a model on a split of `NAME[@VERSION]`.

    Args:
        model: to be judged.
        lake: holds the data set.
        reference: data set and version.
        split: whose documents are scored.
        with_captions: whether caption metrics are computed; METEOR starts a Java program of its own.

    Raises:
        NotFoundError: the data set, version or split is not there.
        UsageError: the data set lacks what the model reads, or nothing of it is known to be linked.
    """
    subject = _subject(model, lake, reference, split)
    pool = embedded_pool(subject.documents, subject.embedded)
    refined, relations, no_relations = _relations(subject, pool)
    calibration, no_calibration = _calibration(subject, lake)
    groups, alike = _confusion(subject)
    analysis = _analysis(subject)
    absent = {
        "relations": no_relations,
        "calibration": no_calibration,
        "analysis": "" if analysis else "fewer than three documents could be scored",
        "captions": "" if with_captions else "not asked for (--captions)",
    }
    measures = Measures(
        retrieval=retrieval_scores(pool) if len(pool.pairs) else (),
        relations=relations,
        refined=refined,
        groups=_groups(subject),
        retrieval_groups=retrieval_groups(model, subject.documents, subject.embedded),
        analysis=analysis,
        confusion=groups,
        confused=alike,
        calibration=calibration,
        captions=caption_scores(_captions(subject)) if with_captions else None,
        absent={name: reason for name, reason in absent.items() if reason},
    )
    return Judged(subject.evaluation, measures)


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


def _subject(model: LinkModel, lake: Lake, reference: str, split: Split | str) -> _Subject:
    manifest, folder = read_manifest(lake, reference)
    documents = read_documents(model, lake, reference, split)
    embedded = tuple(model.embed(documents))
    evaluation = evaluate_embedded(documents, embedded, where=f"{reference}, split {split}")
    return _Subject(
        model=model,
        manifest=manifest,
        folder=folder,
        split=str(split),
        documents=documents,
        embedded=embedded,
        evaluation=evaluation,
    )


def _calibration(subject: _Subject, lake: Lake) -> tuple[CalibrationJudgement | None, str]:
    """Return how the calibration on validation does on the judged split, or why there is none."""
    if subject.split == Split.VAL:
        return None, "it is fitted on the validation split, which is the one that is judged here"
    seen = observe(subject.evaluation.matrices, subject.evaluation.links)
    if not len(seen):
        return None, "no link was predicted in a document with known links and an unlinked pair"
    try:
        return judge_calibration(calibrate(subject.model, lake, subject.reference), seen), ""
    except UsageError as problem:
        return None, str(problem)


def _relations(subject: _Subject, pool: Pool) -> tuple[tuple[RetrievalScores, ...], tuple[RelationScore, ...], str]:
    """Return refined retrieval, average precisions, and why there are none."""
    predictor = relation_predictor(subject.model)
    if predictor is None:
        return (), (), "the model predicts no relations"
    refine = refinement(predictor, subject.manifest.dataset)
    refined = retrieval_scores(pool, directions=[Direction.TEXT_TO_IMAGE], adjust=refine) if len(pool.pairs) else ()
    labels, texts, images = [], [], []
    evaluation, of_links = subject.evaluation, read_relations(subject.manifest, subject.folder, subject.split)
    places = zip(evaluation.ids, evaluation.links, evaluation.sentence_numbers, subject.embedded, strict=True)
    for document, known, numbers, vectors in places:
        for sentence, image in () if known is None else known.tolist():
            given = of_links[document].get((int(numbers[sentence]), image), {})
            values = [given.get(name) for name in predictor.names]
            if any(value is not None for value in values):
                labels.append([np.nan if value is None else float(value) for value in values])
                texts.append(vectors.texts[sentence])
                images.append(vectors.images[image])
    if not labels:
        return refined, (), "no link has a relation that the model predicts"
    probabilities = predictor.pairs(np.stack(texts), np.stack(images))
    return refined, relation_scores(probabilities, np.array(labels), predictor.names), ""


def _groups(subject: _Subject) -> tuple[GroupScores, ...]:
    """Return scores by language and by role, of whichever there are several; fused texts have no role."""
    matrices, links = subject.evaluation.matrices, subject.evaluation.links
    found: tuple[GroupScores, ...] = ()
    documents = subject.documents
    if documents.languages is not None and len(set(documents.languages)) > 1:
        found += by_language(matrices, links, documents.languages)
    if documents.sources is None and documents.roles is not None and len(set(documents.roles)) > 1:
        found += by_role(matrices, links, [documents.roles[rows] for rows in documents.sentences])
    return found


def _analysis(subject: _Subject) -> DocumentAnalysis | None:
    """Return spread and content of the scored documents, by the data set's own vectors where it has any."""
    scored = subject.evaluation.scored
    if len(scored) < FEWEST_ANALYSED:
        return None
    images: list[Vectors] = [subject.embedded[place].images for place in scored]
    texts: list[Vectors] = [subject.embedded[place].texts for place in scored]
    image_name = text_name = "the model's own"
    if subject.documents.image_bank.shape[1]:
        image_name = subject.model.card.data.image_features or image_name
        images = [subject.image_vectors(place) for place in scored]
    held = _with_sentence_vectors(subject)
    if held is not None:
        text_name, vectors = held
        texts = [vectors[place] for place in scored]
    return analyse_documents(
        [score.auc for score in subject.evaluation.scores],
        images,
        texts,
        image_vectors=image_name,
        text_vectors=text_name,
    )


def _with_sentence_vectors(subject: _Subject) -> tuple[str, list[Vectors]] | None:
    """Return the name of, and each document's, sentence vectors the model reads, else of any the data set has."""
    held, name = subject.documents, subject.model.card.data.sentence_features
    sentences = subject.manifest.extractors("documents")
    if held.sentence_vectors is None and sentences:
        name = min(sentences)
        held = read_split(subject.manifest, subject.folder, subject.split, Columns(sentences=name))
    if held.sentence_vectors is None or name is None:
        return None
    return name, [held.sentence_vectors[rows] for rows in held.sentences]


def _confusion(subject: _Subject) -> tuple[tuple[ConfusionGroup, ...], tuple[ConfusedImages, ...]]:
    """Return the choices among images by how alike they are, in the data set's own vectors."""
    if not subject.documents.image_bank.shape[1]:
        return (), ()
    vectors = [subject.image_vectors(place) for place in range(len(subject.documents))]
    found, chances = choices(subject.evaluation.matrices, subject.evaluation.links, vectors)
    shown = most_confused(found, most=CONFUSED_EXAMPLES)
    return confusion_groups(found, chances), tuple(_confused(subject.documents, choice) for choice in shown)


def _confused(documents: DocumentSet, choice: Choice) -> ConfusedImages:
    shown = documents.image_rows[documents.images.rows(choice.document)]
    sentence = documents.sentences.offsets[choice.document] + choice.sentence
    hashes = [documents.image_hashes[shown[image]] for image in (choice.image, choice.nearest)]
    return ConfusedImages(
        document=documents.ids[choice.document],
        sentence=documents.texts[sentence],
        image=hashes[0],
        chosen=hashes[1],
        nearness=choice.nearness,
    )


def _captions(subject: _Subject) -> list[ChosenCaption]:
    texts = [subject.documents.texts[rows] for rows in subject.documents.sentences]
    return chosen_captions(subject.evaluation.matrices, subject.evaluation.links, texts)
