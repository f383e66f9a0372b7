"""How well a model finds the links of a split: scores of each document, and random's on the same ones, as one table.

A model is evaluated on a data set version shard by shard (`models.py`); matrices that were made elsewhere come from a
file. Other measures are in `judge.py`, comparisons of two evaluations in `studies.py`. Every number becomes a row of
`training.metrics.intervals`; a few functions read such rows. `EvaluateConfig` is what `multilink evaluate --set
KEY=VALUE` changes.

Matrices made elsewhere are JSON Lines, one document a line:

    {"id": "d1", "scores": [[0.9, 0.1], [0.2, 0.3]], "links": [[0, 0]]}

`scores` is n rows (sentences) of m numbers (images), `links` the true (sentence, image) pairs, from 0, or null where
they are unknown. A line that is not so stops the reading with its number: scores of half a file would be wrong.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq

from schemas.configs import NonNegativeInt, PositiveInt, Settings
from schemas.lake import Folder
from schemas.messages import UsageError
from schemas.tables import to_table
from training.data.documents import DocumentSet
from training.data.ragged import Float64, Floats, Int64, require_finite, stream
from training.metrics.intervals import EVALUATION_SCHEMA, Score
from training.metrics.links import (
    FULLY_LINKED,
    DocumentScores,
    Links,
    LinkScore,
    PairScore,
    ScoreKind,
    score_documents,
)
from training.metrics.relations import RefineConfig
from training.metrics.retrieval import SAMPLE_PAIRS, SAMPLES, linked_pool, score_pairs
from training.model import EmbeddedDocument
from training.parts import PACKAGED

FILE_NAME = "evaluation.parquet"
ABSENT, LEFT_OUT, CANDIDATES, RANDOM, DOCUMENT = "absent", "left_out", "candidates", "random", "document"
POSITION, NOT_SAMPLED = "position", "beyond max_documents"
POOL_DOCUMENTS = 10_000  # whose vectors are held
METRICS = frozenset(metric for kind in ScoreKind for metric in kind.metrics)
AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """What was evaluated on what, and every number of it.

    Attributes:
        model: registered name, or the address it was loaded from.
        model_version: registered version, where there is one.
        dataset: name of the data set.
        dataset_version: its version.
        split: split of it.
        rows: all numbers.
    """

    model: str
    model_version: str | None
    dataset: str
    dataset_version: str
    split: str
    rows: tuple[Score, ...]

    def write(self, directory: Path) -> Path:
        """Write the table into a folder, made if missing, and return its path."""
        about = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "rows"}
        rows = (about | asdict(row) for row in self.rows)
        with Folder(str(directory)).create(FILE_NAME) as sink:
            pq.write_table(to_table(rows, EVALUATION_SCHEMA), sink.stream, compression="zstd")
            sink.commit()
        return directory / FILE_NAME

    def values(self) -> dict[str, float]:
        """Return `measure metric group` -> value of the numbers that have one, but for those of single documents."""
        return {
            " ".join(filter(None, (row.measure, row.metric, row.group))): row.value
            for row in self.rows
            if row.value is not None and row.measure != DOCUMENT
        }


def of_measure(measure: str, rows: Iterable[Score], *, note: str | None = None) -> tuple[Score, ...]:
    """Return rows as of one measure, with a note where one is given."""
    return tuple(replace(row, measure=measure, note=row.note if note is None else note) for row in rows)


def absent(measure: str, reason: object) -> Score:
    """Return the row with the reason why a measure has no numbers."""
    return Score(ABSENT, measure=measure, unit="", note=str(reason))


def means_of(rows: Iterable[Score], measure: str) -> dict[str, Score]:
    """Return metric -> mean score of a model or a baseline; those of a language, a role or another group are not."""
    return {
        row.metric: row
        for row in rows
        if row.measure == measure and row.metric in METRICS and "=" not in row.group and row.value is not None
    }


def kind_of(rows: Sequence[Score]) -> ScoreKind:
    """Return what kind of scores the model has: of links, and of retrieval only where no document has those."""
    has_pairs_alone = not means_of(rows, ScoreKind.LINKS) and means_of(rows, ScoreKind.PAIRS)
    return ScoreKind.PAIRS if has_pairs_alone else ScoreKind.LINKS


def documents_of(rows: Sequence[Score]) -> int:
    """Return how many documents the model's means are over."""
    return max((score.n for score in means_of(rows, kind_of(rows)).values()), default=0)


def candidates_of(rows: Iterable[Score]) -> int | None:
    """Return how many images a text chooses from, where documents are pairs."""
    return next((row.n for row in rows if row.metric == CANDIDATES), None)


def left_out_of(rows: Sequence[Score]) -> dict[str, int]:
    """Return the documents that could not be scored, by reason; of pairs, every one has its only pair linked."""
    counts = {row.group: row.n for row in rows if row.metric == LEFT_OUT}
    return {reason: n for reason, n in counts.items() if reason != FULLY_LINKED or kind_of(rows) is ScoreKind.LINKS}


def interval_json(score: Score) -> dict[str, float | None]:
    """Return a mean and the ends of its interval."""
    return {"mean": score.value, "low": score.low, "high": score.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig(Settings):
    """What the baselines read (`auto` takes the only column there is), and how retrieval is measured.

    Attributes:
        image_features: image column of `joint-embeddings`.
        sentence_features: sentence column of `joint-embeddings`.
        class_features: classes of `object-detection`.
        word_vectors: of `object-detection` and `spread_words`: a vector file or `glove-6b-50d` (packaged).
        word_dimensions: their size.
        sample_pairs: pairs of a sample of the retrieval pool (Alikhani 2022: 500).
        samples: how many samples are drawn; 0: the whole pool alone.
        distinct_images: an image of several documents is one candidate; otherwise one for each, as a table's rows.
        refine: selective refinement of similarities, of models that predict relations.
        position: whether the ablation is made with the place of an image in the layout as a feature of the score.
        max_documents: that are evaluated, of a larger split a random sample of whole shards; 0: all, which are held.
        spread_words: whether the spread and content of sentences are of the mean vectors of their words
            (`word_vectors`), as in Hessel 2019; else of the data set's sentence vectors.
    """

    image_features: str = AUTO
    sentence_features: str = AUTO
    class_features: str = AUTO
    word_vectors: str = PACKAGED
    word_dimensions: PositiveInt = 50
    sample_pairs: PositiveInt = SAMPLE_PAIRS
    samples: NonNegativeInt = SAMPLES
    distinct_images: bool = True
    refine: RefineConfig = field(default_factory=RefineConfig)
    position: bool = False
    max_documents: NonNegativeInt = POOL_DOCUMENTS
    spread_words: bool = False


STANDARD_CONFIG = EvaluateConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How well a model finds the links of documents.

    Attributes:
        ids: every document, scored or not.
        scores: of links; empty where no document could be scored (one sentence and one image each).
        chance: of links, of a model that draws every similarity at random, on the same documents.
        where: what was evaluated, for messages.
        pairs: scores of retrieval, of documents that have links; None where they were not computed or there are none.
    """

    ids: Sequence[str]
    scores: DocumentScores
    chance: DocumentScores
    where: str
    pairs: DocumentScores | None = None

    @property
    def own(self) -> DocumentScores:
        """Return the scores of links, or where no document has any those of retrieval."""
        return self.scores if self.scores or self.pairs is None else self.pairs

    @property
    def mean(self) -> dict[str, Score]:
        """Return metric -> mean link score.

        Raises:
            UsageError: no document could be scored.
        """
        if not self.scores:
            raise nothing_to_score(self.where, self.scores.left_out)
        return self.scores.means()

    @property
    def document_auc(self) -> dict[str, float]:
        """Return document id -> AUC in percent, of the scored documents."""
        return {name: score[0] for name, score in self.by_document(self.scores).items()}

    def by_document(self, scores: DocumentScores) -> dict[str, LinkScore | PairScore]:
        """Return document id -> its scores, of the documents that have some."""
        return {self.ids[number]: each for number, each in zip(scores.documents.tolist(), scores, strict=True)}

    def rows(self) -> Iterator[Score]:
        """Yield every number: means, random's, how many documents were left out, and the scores of each document."""
        yield from of_measure(ScoreKind.LINKS, self.scores.means().values())
        yield from of_measure(RANDOM, self.chance.means().values())
        if self.pairs is not None and self.pairs.chance is not None:
            candidates = self.pairs.candidates
            group = f"text to image, whole pool of {candidates}"
            yield Score(CANDIDATES, float(candidates), n=candidates, measure=ScoreKind.PAIRS, unit="images")
            for score in self.pairs.means().values():
                yield replace(score, measure=ScoreKind.PAIRS, group=group)
            for metric, value in self.pairs.chance._asdict().items():
                yield Score(metric, value, n=len(self.pairs), group=group, measure=RANDOM, note="expected")
        for reason, count in self.scores.left_out.items():
            yield Score(LEFT_OUT, float(count), n=count, group=reason, measure=ScoreKind.LINKS, unit="documents")
        for scores in filter(None, (self.scores, self.pairs)):
            for document, values in self.by_document(scores).items():
                for metric, value in values._asdict().items():
                    yield Score(metric, value, n=1, group=document, measure=DOCUMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixEvaluation(Evaluation):
    """An evaluation with the similarities and links that it is of.

    Attributes:
        matrices: n x m similarities of each document.
        links: (row, image) links of each, or None where unknown.
        sentence_numbers: indices in each document of the sentences that the rows of its matrix are.
    """

    matrices: tuple[Floats, ...]
    links: tuple[Int64 | None, ...]
    sentence_numbers: tuple[Int64, ...]


def has_links(documents: DocumentSet) -> bool:
    """Return whether a link of some document is known."""
    return any(known is not None and len(known) > 0 for known in documents.links or ())


def evaluate_embedded(
    documents: DocumentSet,
    embedded: Sequence[EmbeddedDocument],
    *,
    where: str,
    with_pairs: bool = False,
    needs_links: bool = True,
) -> MatrixEvaluation:
    """Return the evaluation of documents whose vectors are known; see `evaluate_model`.

    Raises:
        UsageError: no link is known, though links are needed.
    """
    links = documents.links or ()
    evaluation = evaluate_matrices(
        documents.ids,
        tuple(document.similarities() for document in embedded),
        links,
        sentence_numbers=[documents.sentence_numbers[rows] for rows in documents.sentences],
        where=where,
        may_be_unscored=has_links(documents) or not needs_links,
    )
    if with_pairs or not evaluation.scores:
        return replace(evaluation, pairs=score_pairs(linked_pool(documents, embedded, links)))
    return evaluation


def evaluate_matrices(
    ids: Sequence[str],
    matrices: Sequence[Floats],
    links: Sequence[Links | None],
    *,
    sentence_numbers: Sequence[Int64] | None = None,
    where: str,
    may_be_unscored: bool = False,
) -> MatrixEvaluation:
    """Return the evaluation of similarity matrices against links.

    Args:
        ids: of the documents.
        matrices: n x m similarities of each.
        links: of each, or None where unknown.
        sentence_numbers: of each, the indices of its rows' sentences; None: the rows are all its sentences.
        where: what is evaluated, for messages.
        may_be_unscored: whether there may be no document with some linked and some unlinked pairs.

    Raises:
        UsageError: no document can be scored.
    """
    scores, chance = scores_of(ids, matrices, links)
    if not scores and not may_be_unscored:
        raise nothing_to_score(where, scores.left_out)
    return MatrixEvaluation(
        ids=tuple(ids),
        matrices=tuple(matrices),
        links=tuple(None if known is None else np.asarray(known, np.int64).reshape(-1, 2) for known in links),
        sentence_numbers=tuple(sentence_numbers or (np.arange(len(matrix)) for matrix in matrices)),
        scores=scores,
        chance=chance,
        where=where,
    )


def scores_of(
    ids: Sequence[str], matrices: Sequence[Floats], links: Sequence[Links | None]
) -> tuple[DocumentScores, DocumentScores]:
    """Return the link scores of documents, and those of similarities drawn at random."""
    drawn = (random_similarities(name, *matrix.shape) for name, matrix in zip(ids, matrices, strict=True))
    return score_documents(matrices, links), score_documents(drawn, links)


def random_similarities(document: str, sentences: int, images: int, *, seed: int = 0) -> Floats:
    """Return the random baseline's n x m matrix in [0, 1), the same for a document whatever was drawn before."""
    return stream("random baseline", seed, document).random((sentences, images), dtype=np.float32)


def nothing_to_score(where: str, left_out: Mapping[str, int]) -> UsageError:
    """Return the error that no document can be scored."""
    counts = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    return UsageError(f"{where}: expected documents with some linked and some unlinked pairs, found none ({counts})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredDocument:
    """A document of a scores file."""

    id: str
    scores: list[list[float]]
    links: list[tuple[int, int]] | None

    @property
    def matrix(self) -> Float64:
        """Return the n x m similarities.

        Raises:
            ValueError: the rows are not of equal length, or a number is not finite.
        """
        matrix = np.array(self.scores, np.float64).reshape(len(self.scores), max(map(len, self.scores), default=0))
        require_finite(matrix, "scores")
        return matrix

    def pairs(self, shape: tuple[int, ...]) -> Int64 | None:
        """Return the L x 2 links; None: they are unknown.

        Raises:
            ValueError: one is outside the sentences and images.
        """
        if self.links is None:
            return None
        pairs = np.array(self.links, np.int64).reshape(-1, 2)
        outside = pairs[((pairs < 0) | (pairs >= shape)).any(axis=1)]
        if len(outside):
            raise ValueError(f"link {outside[0].tolist()} is outside {shape[0]} sentences x {shape[1]} images")
        return pairs


def evaluate_scores(path: Path) -> Evaluation:
    """Return the evaluation of a scores file.

    Raises:
        UsageError: a line is broken, an id comes twice, or no document can be scored.
    """
    line_of: dict[str, int] = {}
    matrices, links = list[Float64](), list[Int64 | None]()
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                document = msgspec.json.decode(line, type=ScoredDocument)
                matrices.append(document.matrix)
                links.append(document.pairs(matrices[-1].shape))
                if (first := line_of.setdefault(document.id, number)) != number:
                    raise ValueError(f"the id {document.id!r} of line {first} again")
            except (ValueError, UsageError) as problem:
                wanted = 'an object of its own "id", "scores" (rows of equal length) and "links" (pairs or null)'
                raise UsageError(f"{path}, line {number}: expected {wanted}: {problem}") from problem
    return evaluate_matrices(list(line_of), matrices, links, where=str(path))
