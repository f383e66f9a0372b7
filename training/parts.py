"""Parts of a configuration that are chosen by name: how they are found, and what they need of the data.

A tower or a term of an objective is one file with its settings, its code, and what it needs of the data. The rest asks
a configuration what it needs (`Needs`), and never what it is. Settings of towers are in `towers/settings.py`, terms in
`objectives/term.py`, and what several parts must agree on in `config.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

from schemas.configs import Settings
from schemas.plugins import Group, requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a part reads of a data set in addition to the documents' texts; several parts need what any of them does.

    Attributes:
        image_vectors: one vector an image.
        regions: detected regions of the images.
        labels: the regions' labels, through the word vectors of the text tower.
        jpegs: the pictures themselves.
        sentence_vectors: one vector a sentence.
        words: a vocabulary of the training split.
        languages: those that words are looked up in; () where the documents' languages are not read.
        sources: roles whose texts are fused to one row a document; () where each sentence is a row.
        relations: relations of links: `all`, or a name; empty: none.
        links: share of the training documents whose links are shown; 0: none.
        pairs: whether every document must be one text and one image.
    """

    image_vectors: bool = False
    regions: bool = False
    labels: bool = False
    jpegs: bool = False
    sentence_vectors: bool = False
    words: bool = False
    languages: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    relations: str = ""
    links: float = 0.0
    pairs: bool = False

    def __or__(self, other: Needs) -> Needs:
        """Return what two parts need together."""
        both = {each.name: getattr(self, each.name) or getattr(other, each.name) for each in fields(self)}
        return Needs(**both)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSettings(Settings):
    """Settings of a part that is chosen by its name.

    Attributes:
        group: of the parts of its kind.
        name: of the part.
    """

    group: ClassVar[Group]
    name: str = ""

    @property
    def needs(self) -> Needs:
        """Return what the part reads of a data set."""
        return Needs()

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the names of the packages that its code needs in addition to the training core's."""
        return ()

    @property
    def plugin(self) -> str | None:
        """Return the package that brings the part, as a requirement; None for this project's own."""
        return requirement(self.group, self.name)


def parts_in(settings: Settings) -> Iterator[PartSettings]:
    """Yield the parts that settings hold, each before those that it holds itself."""
    for each in fields(settings):
        value = getattr(settings, each.name)
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, PartSettings):
                yield inner
            if isinstance(inner, Settings):
                yield from parts_in(inner)
