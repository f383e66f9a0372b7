"""Which picture goes with which sentence of a long article: the links that a model predicts in it (Hessel 2019, 3.2).

Every sentence is compared with every picture by their cosine (an index has no inputs of steps at link time), and the
maximum-weight matching is taken, as in linking: each picture has at most one sentence, and each sentence one picture. A
picture without one is for a person to place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from newsroom.archive.index import Index
from newsroom.search.queries import Query, QueryReader, Reader, read_words
from schemas.documents import UNDETERMINED, Role
from schemas.errors import UsageError
from training.data.ragged import Float32
from training.similarity.assignment import predicted_pairs

MAX_SENTENCES, MAX_PLACED = 2_000, 100


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of a picture.

    Attributes:
        image: content hash.
        sentence: its number, from 0; None: no sentence is linked to the picture.
        similarity: cosine of the two.
    """

    image: str
    sentence: int | None = None
    similarity: float | None = None


def place(
    index: Index,
    sentences: Sequence[str],
    images: Sequence[str],
    *,
    language: str = UNDETERMINED,
    reader: Reader = read_words,
    own: Mapping[str, str] | None = None,
    vectors_of: Callable[[Sequence[str], str], Float32] | None = None,
) -> list[Placed]:
    """Return where each picture goes, in the given order.

    Args:
        index: that has the pictures; its model compares.
        sentences: of the article, none blank.
        images: content hashes of pictures of the index, each once.
        language: of the article.
        reader: gives what the model reads beside words.
        own: pictures that are not of the index, placed behind the others: a name and a path each.
        vectors_of: gives S x d vectors of sentences in a language, as one who remembers them does; None: they are read.

    Raises:
        UsageError: there are too many, or the model cannot read the sentences.
        NotFoundError: a picture is not in the index.
    """
    own = own or {}
    names = [*images, *own]
    if len(sentences) > MAX_SENTENCES or len(names) > MAX_PLACED:
        found = f"found {len(sentences)} and {len(names)}"
        raise UsageError(f"expected at most {MAX_SENTENCES} sentences and {MAX_PLACED} pictures, {found}")
    placed = [Placed(image=name) for name in names]
    if not sentences or not names:
        return placed
    rows = index.records.rows_named(images)
    queries = QueryReader(index.model, reader)
    pictures = np.stack([*index.vectors.rows[rows], *map(queries.picture, own.values())])
    read = vectors_of or partial(sentence_vectors, queries)
    matrix = read(sentences, language) @ pictures.T
    for row, column in zip(*predicted_pairs(matrix), strict=True):
        placed[column] = Placed(names[column], int(row), float(matrix[row, column]))
    return placed


def sentence_vectors(queries: QueryReader, sentences: Sequence[str], language: str) -> Float32:
    """Return S x d unit vectors of an article's sentences, each read alone.

    Raises:
        UsageError: the model cannot read them.
    """
    return queries.vectors([Query(texts={str(Role.BODY): text}, language=language) for text in sentences])
