"""MSCOCO captions as documents of ten images and ten captions, five of which belong together (Hessel 2019, suppl. 1).

    {"licenses": [{"id": 3, "name": "...", "url": "http://creativecommons.org/licenses/by-nc-nd/2.0/"}, ...],
     "images": [{"id": 9, "file_name": "COCO_train2014_000000000009.jpg", "license": 3, ...}],
     "annotations": [{"id": 661611, "image_id": 9, "caption": "..."}]}

Which images make a document is in `pipelines.sources.versions`, which captions distract in
`pipelines.sources.distractors`: both follow from ids and the seed, whatever the order of the records. Only ids, names
and captions are in memory, the captions in one block.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.sources.candidate import CandidateDocument, stated
from pipelines.sources.captions import caption_text, file_name, number
from pipelines.sources.crowd_settings import MscocoSource
from pipelines.sources.distractors import CaptionPool, PackedTexts, place, shuffled_order
from pipelines.sources.fields import FieldError, checked, clean
from pipelines.sources.json_streams import is_index, read_lists
from pipelines.sources.openings import BrokenInputError, Place, input_file
from pipelines.sources.versions import ImageGroup, count_versions, group_images, split_groups
from schemas.configs import require
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.errors import BuildError
from schemas.failures import Failure, Reason, Stage

DATASET = "mscoco"
LANGUAGE = "en"


def read_mscoco(source: MscocoSource) -> Iterator[CandidateDocument | Failure]:
    """Yield a failure for each image and caption that cannot be used, then the drafts, split by split.

    Image addresses are names relative to `source.images`. Images that fill no group are failures too (TOO_FEW_IMAGES),
    as are images without caption (TOO_FEW_SENTENCES).

    Raises:
        BuildError: a file is no captions file.
        ConfigError: no captions file is named.
        FileNotFoundError: there is no such file.
    """
    require(bool(source.captions), field="source.captions", value=source.captions, rule="expected captions files")
    tables = _Tables()
    for file_number, path in enumerate(source.captions):
        yield from tables.read(path, source.folder(file_number))
    captions = yield from tables.captions_of_images()
    groups, left_over = group_images(
        captions.keys(), true=source.true_images, fake=source.fake_images, seed=source.seed
    )
    for image in left_over:
        message = f"expected groups of {source.true_images} and of {source.fake_images} images, found it left over"
        yield Failure(Stage.SOURCES, f"image {image}", Reason.TOO_FEW_IMAGES, message)
    for split, members in split_groups(groups, val=source.val, test=source.test, seed=source.seed).items():
        yield from _Documents(source, split, tables, captions).of(members)


@dataclass(slots=True)
class _Tables:
    """Images and captions of all files; caption `row` has id `ids[row]` and is about image `images[row]`."""

    uris: dict[int, str] = field(default_factory=dict)
    licences: dict[int, str] = field(default_factory=dict)
    texts: PackedTexts = field(default_factory=PackedTexts)
    ids: array[int] = field(default_factory=lambda: array("q"))
    images: array[int] = field(default_factory=lambda: array("q"))

    def read(self, place: Place, folder: str) -> Iterator[Failure]:
        """Add a file's images and captions; yield what cannot be used, and captions that came before."""
        file = input_file(place)
        known = set(self.ids)
        uris: dict[int, str] = {}
        licences = _Licences()
        counts = {"images": 0, "annotations": 0}
        try:
            for name, item in read_lists(file):
                if name == "licenses":
                    licences.add(item)
                if name not in counts:
                    continue
                counts[name] += 1
                if name == "images":
                    licences.note(item)
                try:
                    record: dict[str, Any] = checked(item, dict, name)
                    problem = self._caption(record, known) if name == "annotations" else _image(record, folder, uris)
                except FieldError as error:
                    problem = error.failure(_record_id(item, name, f"{file.name}#{counts[name]}"))
                if problem:
                    yield problem
        except BrokenInputError as problem:
            yield problem.failure()
        else:
            if not all(counts.values()):
                raise BuildError(f"{file}: expected the lists 'images' and 'annotations', found {counts}")
        for image in sorted(uris.keys() & self.uris.keys()):
            yield _duplicate("image", image)
        self.uris = uris | self.uris
        self.licences = licences.by_image() | self.licences

    def _caption(self, record: Mapping[str, Any], known: set[int]) -> Failure | None:
        """Add a caption unless an earlier file has it; repeats within one file are settled when all are known."""
        caption, image, text = number(record, "id"), number(record, "image_id"), caption_text(record, "caption")
        if caption in known:
            return _duplicate("caption", caption)
        self.ids.append(caption)
        self.images.append(image)
        self.texts.append(text)
        return None

    def captions_of_images(self) -> Generator[Failure, None, dict[int, list[int]]]:
        """Return the rows of each image's captions, by caption id; yield the captions and images left out.

        Of captions with one id, the one whose image and text sort first stays.
        """
        captions: dict[int, list[int]] = {image: [] for image in sorted(self.uris)}
        last = -1
        for row in sorted(range(len(self.ids)), key=self._sort_key):
            caption, image = self.ids[row], self.images[row]
            if caption == last:
                yield _duplicate("caption", caption)
            elif image not in captions:
                message = f"expected an image {image} among 'images', found none"
                yield Failure(Stage.SOURCES, f"caption {caption}", Reason.NOT_FOUND, message)
            else:
                captions[image].append(row)
            last = caption
        for image in [image for image, rows in captions.items() if not rows]:
            del captions[image]
            message = "expected a caption of the image, found none"
            yield Failure(Stage.SOURCES, f"image {image}", Reason.TOO_FEW_SENTENCES, message)
        return captions

    def _sort_key(self, row: int) -> tuple[int, int, str]:
        return self.ids[row], self.images[row], self.texts[row]


@dataclass(slots=True)
class _Licences:
    """The licences a file lists, and which one an image is under; the list may come after the images."""

    names: dict[int, str] = field(default_factory=dict)
    of_images: dict[int, int] = field(default_factory=dict)

    def add(self, item: object) -> None:
        """Note a listed licence by its URL, or else its name."""
        record = item if isinstance(item, dict) else {}
        name = record.get("url") or record.get("name")
        if is_index(record.get("id")) and isinstance(name, str) and name.strip():
            self.names[record["id"]] = clean(name.strip())

    def note(self, item: object) -> None:
        """Note which licence an image is under, if its record says so."""
        record = item if isinstance(item, dict) else {}
        if is_index(record.get("id")) and is_index(record.get("license")):
            self.of_images.setdefault(record["id"], record["license"])

    def by_image(self) -> dict[int, str]:
        return {image: self.names[licence] for image, licence in self.of_images.items() if licence in self.names}


def _image(record: Mapping[str, Any], folder: str, uris: dict[int, str]) -> Failure | None:
    """Add an image; of two with one id in a file, the name that sorts first stays."""
    image, name = number(record, "id"), file_name(record, "file_name")
    uri = f"{folder.strip('/')}/{name}" if folder.strip("/") else name
    is_new = image not in uris
    uris[image] = uri if is_new else min(uri, uris[image])
    return None if is_new else _duplicate("image", image)


def _duplicate(what: str, number: int) -> Failure:
    message = f"expected one {what} of this id, found another"
    return Failure(Stage.SOURCES, f"{what} {number}", Reason.DUPLICATE_RECORD, message)


def _record_id(item: object, name: str, place_in_file: str) -> str:
    """Return what to call a record that cannot be used: by its id where it has one."""
    record_id = item.get("id") if isinstance(item, dict) else None
    what = "image" if name == "images" else "caption"
    return f"{what} {record_id}" if isinstance(record_id, int) else f"{place_in_file} ({what})"


@dataclass(frozen=True, slots=True)
class _Documents:
    """Makes the documents of one split; `captions` are rows of `tables` by image."""

    source: MscocoSource
    split: Split
    tables: _Tables
    captions: Mapping[int, Sequence[int]]

    def of(self, groups: Sequence[ImageGroup]) -> Iterator[CandidateDocument | Failure]:
        """Yield all versions of each group's document; distractors come from the captions of these groups' images."""
        images = sorted(image for group in groups for image in group.images)
        pool = CaptionPool((image, [self.tables.texts[row] for row in self.captions[image]]) for image in images)
        for group in groups:
            counts = [len(self.captions[image]) for image in group.true]
            for version in range(count_versions(counts, split=self.split, most=self.source.versions)):
                yield self._document(group, version, pool)

    def _document(self, group: ImageGroup, version: int, pool: CaptionPool[int]) -> CandidateDocument | Failure:
        """Return a version of a group's document: its sentences and images in an order that tells nothing."""
        document_id = f"{group.id}-v{version}"
        seed, wanted = self.source.seed, self.source.distractors
        distractors = pool.distractors(wanted, images=group.images, seed=seed, key=document_id)
        if len(distractors) < wanted:
            message = f"expected {wanted} captions of other images of the {self.split} split, found {len(distractors)}"
            return Failure(Stage.SOURCES, document_id, Reason.TOO_FEW_SENTENCES, message)
        texts = [self._caption(image, version) for image in group.true] + distractors
        sentences = shuffled_order(len(texts), seed=seed, key=document_id)
        images = shuffled_order(len(group.images), seed=seed, key=group.id)
        pairs = range(len(group.true))  # text i was written about image i
        return CandidateDocument(
            id=document_id,
            dataset=DATASET,
            sentences=tuple(Sentence(texts[index]) for index in sentences),
            image_uris=tuple(self.tables.uris[group.images[index]] for index in images),
            links=tuple(sorted(Link(sentences.index(pair), images.index(pair)) for pair in pairs)),
            provenance=Provenance(DATASET, group.id),
            language=LANGUAGE,
            split=self.split,
            image_licences=stated(self.tables.licences.get(group.images[index]) for index in images),
        )

    def _caption(self, image: int, version: int) -> str:
        """Return the caption of an image that a version has: another one in each version."""
        rows = sorted(self.captions[image], key=lambda row: place(self.source.seed, "caption", self.tables.ids[row]))
        return self.tables.texts[rows[version]]
