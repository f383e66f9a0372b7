"""Groups of an evaluation's texts: by language, by role, by relation of their links, by source of a fused model.

A group's link scores are those of its rows: a document's matrix is cut to the sentences of the group and scored as if
they were all it had. Its retrieval is over a pool of its own: the group's texts look for their images among the
group's, and back (Liu 2020, tables 1, 3 and 4, by source and language; Alikhani 2022, table 7, by relation).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from schemas.evaluation import Score
from training.data.ragged import Floats, Int64
from training.evaluation.metrics.links import score_documents

LANGUAGE, ROLE, SOURCE, RELATION = "language", "role", "source", "relation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some of the texts of all documents.

    Attributes:
        kind: what the groups are: `language`, `role`, `source`, `relation`.
        name: of the group.
        rows: which of a document's n sentences are in the group, for each document; None: the document is not.
        links: (sentence, image) links of these sentences, counted as in the document.
        texts: vectors of the sentences where they are read otherwise than in the document, n x d for each document.
    """

    kind: str
    name: str
    rows: Sequence[Int64 | None]
    links: Sequence[Int64 | None]
    texts: Sequence[Floats] | None = None

    @property
    def title(self) -> str:
        """Return what its rows in an evaluation have as `group`."""
        return f"{self.kind}={self.name}"


def language_groups(languages: Sequence[str], links: Sequence[Int64 | None], counts: Sequence[int]) -> Iterator[Group]:
    """Yield the documents of each language, where there are several; `counts` are the documents' sentences."""
    for language in _several(languages):
        is_own = [own == language for own in languages]
        yield Group(
            kind=LANGUAGE,
            name=language,
            rows=[np.arange(n) if own else None for n, own in zip(counts, is_own, strict=True)],
            links=[known if own else None for known, own in zip(links, is_own, strict=True)],
        )


def role_groups(roles: Sequence[Sequence[str]], links: Sequence[Int64 | None]) -> Iterator[Group]:
    """Yield the sentences of each role, where there are several; `roles` has a role for each sentence."""
    for role in _several([name for row in roles for name in row]):
        rows = [np.flatnonzero([name == role for name in row]) for row in roles]
        kept = [
            None if known is None else known[np.isin(known[:, 0], own)] for known, own in zip(links, rows, strict=True)
        ]
        yield Group(kind=ROLE, name=role, rows=rows, links=kept)


def link_scores(group: Group, matrices: Sequence[Floats]) -> Iterator[Score]:
    """Yield the mean link scores of a group; none where no document of it can be scored."""
    cut, renumbered = [], []
    for matrix, rows, known in zip(matrices, group.rows, group.links, strict=True):
        if rows is not None and known is not None:
            cut.append(matrix[rows])
            renumbered.append(np.stack([np.searchsorted(rows, known[:, 0]), known[:, 1]], axis=1))
    yield from score_documents(cut, renumbered).means().values()


def _several(names: Sequence[str]) -> list[str]:
    different = sorted(set(names))
    return different if len(different) > 1 else []
