"""Decisions as a data set: a file for the data set `documents`, with the pictures beside it.

A document is an article: its texts, each with its role; the pictures that were chosen and those that were rejected as
not fitting; a link from every text to every chosen picture.

The export follows from the last decision on each picture (`newsroom.decisions.records.standing`). A picture rejected
for its quality, its rights, or because it was used shows nothing about text and picture, and neither does one on the
shortlist: both are left out.

Pictures are the 256-px copies of the version they were shown from: they are in the lake when the addresses are long
dead. A copy of a copy has another content hash than the original.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from newsroom.decisions.records import Action, Decision, standing
from newsroom.decisions.store import Store
from schemas.documents import Role, Split
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import NotFoundError
from schemas.parts import rows_where

DATASET = "decisions"  # name it gets in the lake
FILE = "documents.jsonl"
PICTURES = "pictures"
ORDER = (Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY)
_METADATA = ("title", "caption", "credit", "rights", "date", "place", "keywords")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The files of an export.

    Attributes:
        path: of the file.
        articles: with a chosen picture.
        links: of them.
        pictures: files.
        left_out: articles that are not in it, by reason.
        features: extractors of the images of the versions that the pictures are of.
    """

    path: str
    articles: int
    links: int
    pictures: int
    left_out: Mapping[str, int]
    features: tuple[str, ...]

    def build_arguments(self, lake: str) -> list[str]:
        """Return the arguments of `multilink` that build the data set, with what models of it read."""
        features = ",".join(f'"{name}"' for name in self.features)
        settings = [f"dataset={DATASET}", f"source.documents={self.path}"]
        settings += [f"features.images=[{features}]"] * bool(features)
        return ["build", "documents", "--lake", lake, *(part for each in settings for part in ("--set", each))]


@dataclass(slots=True)
class _Record:
    """A document of the file to be; its pictures as content hashes."""

    id: str
    dataset: str
    language: str
    sentences: list[dict[str, str]]
    images: list[str]
    links: set[tuple[int, str]]


def export(log: Store, lake: Lake, output: Folder, *, split: Split | None = None, as_pairs: bool = False) -> Exported:
    """Write decisions as documents with links; equal logs give equal bytes.

    Args:
        log: of decisions.
        lake: that holds the versions the pictures were shown from.
        output: folder of the file and the pictures.
        split: of all documents; None: the build divides them.
        as_pairs: whether each chosen picture is a document of its own, without other pictures: objectives of one text
            and one image train on such documents.

    Raises:
        NotFoundError: there is nothing to be written.
    """
    decided, left_out = standing(log.decisions()), Counter[str]()
    records = list(_articles(decided, log, left_out))
    if as_pairs:
        records = [pair for each in records for pair in _pairs(each)]
    records.sort(key=lambda each: each.id)
    pictures, features = _pictures(lake, records)
    kept = [each for each in records if _is_kept(each, pictures, left_out)]
    if not kept:
        found = ", ".join(f"{reason}: {count}" for reason, count in sorted(left_out.items())) or "no decision"
        raise NotFoundError(f"decisions: expected a chosen picture, found none ({found})")
    images = sorted({image for each in kept for image in each.images})
    for image in images:
        output.write(f"{PICTURES}/{image}.jpg", pictures[image]["jpeg"])
    lines = (json.dumps(_line(each, pictures, split), ensure_ascii=False) + "\n" for each in kept)
    output.write(FILE, "".join(lines).encode())
    return Exported(
        path=f"{output.uri}/{FILE}",
        articles=len(kept),
        links=sum(len(each.links) for each in kept),
        pictures=len(images),
        left_out=dict(sorted(left_out.items())),
        features=tuple(sorted(features)),
    )


def _articles(decided: Iterable[Decision], log: Store, left_out: Counter[str]) -> Iterator[_Record]:
    """Yield each article for which a picture was chosen."""
    of_article: dict[str, list[Decision]] = defaultdict(list)
    for each in decided:
        if not each.action.is_label:
            of_article[each.article].append(each)
    rankings = log.rankings(each.ranking for each in decided if each.ranking)
    for article, decisions in of_article.items():
        chosen = [each.image for each in decisions if each.action is Action.CHOOSE]
        if not article or not chosen:
            left_out["no text" if not article else "no chosen picture"] += 1
            continue
        wrong = [each.image for each in decisions if each.reason is not None and each.reason.is_mismatch]
        ranking = rankings[decisions[-1].ranking]
        texts = {role: text for role in ORDER if (text := ranking.texts.get(role, "")).strip()}
        sentences = [{"text": text, "role": str(role)} for role, text in texts.items()]
        yield _Record(
            id=f"article-{article[:16]}",
            dataset=ranking.dataset,
            language=ranking.language,
            sentences=sentences,
            images=[*chosen, *wrong],
            links={(number, image) for number in range(len(sentences)) for image in chosen},
        )


def _rows(
    manifest: Manifest, folder: Folder, table: str, columns: Sequence[str], keys: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield some rows of a version's table, by the first of some columns."""
    for split in sorted(manifest.splits):
        for entry in manifest.parts(table, split):
            yield from rows_where(folder, entry, columns, sorted(keys))


def _pairs(record: _Record) -> Iterator[_Record]:
    """Yield an article once for each chosen picture."""
    for image in dict.fromkeys(image for _, image in sorted(record.links)):
        links = {link for link in record.links if link[1] == image}
        yield replace(record, id=f"{record.id}-{image[:16]}", images=[image], links=links)


def _pictures(lake: Lake, records: Iterable[_Record]) -> tuple[dict[str, dict[str, Any]], set[str]]:
    """Return the rows of all pictures that have a copy, by content hash, and the extractors of their versions' images.

    They are of the version that the pictures were shown from, else of the newest one.
    """
    wanted: dict[str, set[str]] = defaultdict(set)
    for each in records:
        wanted[each.dataset] |= set(each.images)
    rows: dict[str, dict[str, Any]] = {}
    features: set[str] = set()
    for dataset, images in sorted(wanted.items()):
        for reference in (dataset, dataset.partition("@")[0]):
            if missing := images - rows.keys():
                with suppress(NotFoundError):
                    manifest, folder = read_manifest(lake, reference)
                    features |= set(manifest.extractors("images"))
                    found = _rows(manifest, folder, "images", ["hash", "licence", "jpeg", "metadata"], missing)
                    rows |= {row["hash"]: row for row in found if row["jpeg"] is not None}
    return rows, features


def _is_kept(record: _Record, pictures: Collection[str], left_out: Counter[str]) -> bool:
    """Drop the pictures of a record that have no copy any more; return whether one that is linked is left."""
    record.images = [image for image in record.images if image in pictures]
    record.links = {(number, image) for number, image in record.links if image in pictures}
    if not record.links:
        left_out["picture gone"] += 1
        return False
    return True


def _line(record: _Record, pictures: Mapping[str, Mapping[str, Any]], split: Split | None) -> dict[str, Any]:
    """Return a record as `documents` reads it (`pipelines.sources.datasets.documents`)."""
    number, images = {image: index for index, image in enumerate(record.images)}, []
    for image in record.images:
        row = pictures[image]
        said = {"licence": row["licence"], **{name: (row.get("metadata") or {}).get(name) for name in _METADATA}}
        images.append({"path": f"{PICTURES}/{image}.jpg"} | {name: value for name, value in said.items() if value})
    return {
        "id": record.id,
        "language": record.language,
        **({"split": str(split)} if split else {}),
        "sentences": record.sentences,
        "images": images,
        "links": sorted([sentence, number[image]] for sentence, image in record.links),
    }
