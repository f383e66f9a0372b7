"""Parts of a configuration that are chosen by name, how they are found, what they need; and settings beside them.

A tower or a term of an objective stands in one file: its settings, its code, and what it needs of the data. The rest
asks a configuration what it needs (`Needs`), and never what it is. Settings of towers are in `towers/settings.py`,
terms in `objectives/term.py`, and what several parts must agree on in `config.py`.

Settings beside the parts say what is read of a data set, and what is done with cosines before links are chosen.
`Reading` is all that `data/` knows of a training run or of a model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.configs import NonNegativeFloat, PositiveInt, Settings, require
from schemas.documents import Role
from schemas.plugins import Group, plugins


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
        return Needs(**{each.name: getattr(self, each.name) or getattr(other, each.name) for each in fields(self)})


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


def requirement(group: Group, name: str) -> str | None:
    """Return the requirement of the package that brings a part; None for this project's own.

    It is `package==version`, but of a package that came from no index it is `package @ URL`, as pip notes it (PEP 610):
    the name alone might be a stranger's on an index.
    """
    entry = plugins(group).get(name)
    if entry is None or entry.dist is None:
        return None
    origin = json.loads(entry.dist.read_text("direct_url.json") or "{}")
    if not origin:
        return f"{entry.dist.name}=={entry.dist.version}"
    url, vcs, archive = origin["url"], origin.get("vcs_info"), origin.get("archive_info", {})
    if vcs is not None:
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    digest = archive.get("hashes", {}).get("sha256")
    return f"{entry.dist.name} @ {url}{f'#sha256={digest}' if digest else ''}"


LEVEL = 0.95  # of every interval
PACKAGED, TRAINED = "glove-6b-50d", "word2vec"  # of `text.word_vectors`, where it is no file's path


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig(Settings):
    """What is read of a data set; for feature columns, `auto` takes the only one there is, beside those of class names.

    Attributes:
        image_features: extractor of the image vectors, several as `A+B`, or `all` (not read by the `region-concept` and
            `fine-tuned` towers).
        sentence_features: extractor of the frozen sentence vectors, likewise (read by the `sentence` tower alone).
        region_features: detector of the regions (read by the `region-concept` tower alone).
        roles: sentences of these roles are read, all where empty (N's single source: `caption`). The `multi-source`
            tower reads the roles of `text.sources` instead.
    """

    part: ClassVar[str] = "data"
    image_features: str = "auto"
    sentence_features: str = "auto"
    region_features: str = "auto"
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        require_roles(self.roles, field="data.roles")


class LinkStep(StrEnum):
    """A step at link time; those that are named are taken in this order.

    `csls`: a sentence and an image lose half of how near each is to everything of the other side (Conneau et al. 2018).
    `class-names`: a second opinion, of what the image's classes are called (Norouzi et al. 2014), where the model reads
    a column `NETWORK-names` and the encoder of its names.
    `half-sinkhorn`: half-way to the soft plan of the document: what else a sentence and an image could go with counts.
    """

    CSLS = "csls"
    CLASS_NAMES = "class-names"
    HALF_SINKHORN = "half-sinkhorn"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings(Settings):
    """What is done with a document's cosines before links are chosen; search goes by the cosines alone.

    Whether `csls` is done, and how much class names count, is chosen at the end of training: what gives the lowest mean
    rank of own images on validation documents, which takes no link. That rank cannot judge `half-sinkhorn`.

    Attributes:
        steps: steps from cosines to similarities; none: similarities are the cosines.
        order: whether the order of sentences and images counts, learnt from the training documents without links. auto:
            where the data set has no known links, and the documents show an order. (The links of published data sets
            often come from the layout: with `on`, a model is measured by what its links were made of.)
        names: weight of the class names, in standard deviations of the cosines for each of theirs.
        bank: number of sentences, and of images, of the training split that `csls` stores with the model; the cosines
            of all their pairs are in memory once (0.8 GB for 10,000).
        neighbours: number of neighbours in the bank whose mean cosine `csls` subtracts.
    """

    part: ClassVar[str] = "link"
    steps: tuple[LinkStep, ...] = ()
    order: Literal["off", "auto", "on"] = "off"
    names: NonNegativeFloat | Literal["auto"] = "auto"
    bank: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    neighbours: PositiveInt = 10


def require_roles(roles: tuple[str, ...], *, field: str) -> None:
    """Raise a `ConfigError` unless these are different roles of texts."""
    roles_of_texts = [role.value for role in Role]
    rule = f"expected different roles of {', '.join(roles_of_texts)}"
    require(set(roles) <= set(roles_of_texts) and len(set(roles)) == len(roles), field=field, value=roles, rule=rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a run or a model reads of a data set version.

    Attributes:
        needs: of its parts.
        data: which columns, and which sentences by their roles.
        seed: of the run, by which the documents are drawn whose links are shown.
        max_rows: sentences and images of a document that take part in a step at most; 0: all.
        objective: name of what is minimised, for messages.
        places: whether the order of sentences and images counts.
    """

    needs: Needs
    data: DataConfig
    seed: int = 0
    max_rows: int = 0
    objective: str = ""
    places: bool = False
