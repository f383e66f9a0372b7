"""A searchable archive for programs: an index, opened once, with all that reads its queries.

from multilink import Archive

with Archive("lake/indexes/archive/1a2b.../multilink-news-triplet-hardest-3") as archive:
    found = archive.search(headline="Flut in Köln", lead="...", where=["date>=2021"], top=10)
    print(found.images[0].picture.metadata, found.images[0].probability)
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from newsroom.archive.filters import parse_filters
from newsroom.archive.index import open_index
from newsroom.search.queries import Query
from newsroom.search.reader import PipelineReader
from newsroom.search.search import RankBy, SearchResult, search
from schemas.documents import UNDETERMINED, Role
from schemas.lake import Folder
from training.metrics.relations import RefineConfig
from training.mlflow.loading import check_index


class Archive:
    """An open index; a context manager, since extractors keep scratch files. May be used by several threads.

    Attributes:
        index: the pictures, their vectors and metadata, and the model.
        reader: turns raw texts and pictures into what the model reads.

    Raises:
        NotFoundError: no index is there.
        IntegrityError: it is not whole, or must verify and does not (`training.mlflow.loading`).
        GateError: its model's policy ended its use.
    """

    def __init__(self, index: str | Path, settings: Sequence[str] = ()) -> None:
        self.index = open_index(str(index), check_index)
        self._scratch = tempfile.TemporaryDirectory(prefix="multilink-search-")
        self.reader = PipelineReader(self.index.model, settings, Folder(self._scratch.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what extractors keep."""
        self._scratch.cleanup()

    def search(
        self,
        *,
        headline: str = "",
        lead: str = "",
        caption: str = "",
        body: str = "",
        language: str = UNDETERMINED,
        image: str | None = None,
        like: Sequence[str] = (),
        unlike: Sequence[str] = (),
        where: Sequence[str] = (),
        entities: Sequence[str] = (),
        top: int = 20,
        rank_by: RankBy | None = None,
        refine: RefineConfig | None = None,
    ) -> SearchResult:
        """Return the first `top` pictures for texts, a picture, or both; see `newsroom.search.search.search`.

        Args:
            headline: of an article.
            lead: of it.
            caption: what the picture is to show.
            body: text of the article.
            language: of the texts.
            image: path or URL of a picture to find similar ones to.
            like: content hashes of pictures of the index to find similar ones to.
            unlike: of pictures to find dissimilar ones to.
            where: conditions on metadata, such as `date>=2019-05`.
            entities: names that the metadata must contain.
            top: how many pictures.
            rank_by: similarity, words, or both; None: what `multilink index` found best on validation texts.
            refine: ranks by refined similarities, of models with relations.

        Raises:
            UsageError: the query or a condition cannot be read.
            NotFoundError: a picture that is liked or not is not in the index.
        """
        texts = {Role.HEADLINE: headline, Role.LEAD: lead, Role.CAPTION: caption, Role.BODY: body}
        query = Query(
            texts={str(role): text for role, text in texts.items() if text},
            language=language,
            picture=image,
            like=tuple(like),
            unlike=tuple(unlike),
        )
        filters = parse_filters(where, entities)
        return search(self.index, query, filters=filters, top=top, rank_by=rank_by, refine=refine, reader=self.reader)
