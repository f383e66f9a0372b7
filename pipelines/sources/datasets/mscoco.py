"""MSCOCO captions as documents of ten images and ten captions, five of which belong together (Hessel 2019, suppl. 1).

    {"licenses": [{"id": 3, "name": "...", "url": "http://creativecommons.org/licenses/by-nc-nd/2.0/"}, ...],
     "images": [{"id": 9, "file_name": "COCO_train2014_000000000009.jpg", "license": 3, ...}],
     "annotations": [{"id": 661611, "image_id": 9, "caption": "..."}]}

Ids are of their file alone: an image of another file is the same where its name is equal, too, and so is a caption of
an image where its text is. Else both count, since tools number from 1. A caption's id is its own among those of its
image: files like COCO's may number them again for each image.

    images by hash   |------- true half -------|------- fake half -------|
    groups of five     t0    t1    t2   ...       f0    f1    f2   ...
    paired             (t0, f0)   (t1, f1)   (t2, f2)   ...

Groups, versions and distractors follow from ids and the seed, whatever the order of the records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from pipelines.recipe import BuildConfig, as_published
from pipelines.sources.draws import CaptionPool, hashed, shuffled_order
from pipelines.sources.fields import MAX_ID, Number, caption_text, typed
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, file_name, outcomes_of, rejected
from pipelines.sources.rows import read_lists
from pipelines.sources.source import Input, Outcomes, Source, input_path
from schemas.configs import NonNegativeInt, PositiveInt, Probability, require
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.failures import Failure, Reason

DATASET = "mscoco"
Captions = Mapping[int, Sequence[str]]  # of each image, in an order that its versions take them in
NumberedText = tuple[int, str]  # the number of a captions file, and what it says


class _Numbered(msgspec.Struct):
    id: Number


class _Licence(_Numbered):
    url: str = ""
    name: str = ""


class _Image(_Numbered):
    file_name: str
    license: Any = None


class _Annotation(_Numbered):
    image_id: Number
    caption: str


_LISTS = {"images": _Image, "annotations": _Annotation, "licenses": _Licence}


@dataclass(frozen=True, slots=True, kw_only=True)
class MscocoSource(Source):
    """Documents made of captioned images and as many images whose captions are withheld.

    Attributes:
        captions: paths of the captions files (`captions_train2014.json`, ...), plain or .gz. An image or a caption that
            several of them hold counts once; the order of the files decides about ids that stand for several things.
        folders: the folder under `images` with the images of a captions file (`train2014`), one for each file or one
            for all; none: `images` itself.
        images: directory or tar that image names are relative to.
        true_images: images of a document that have a caption in it.
        fake_images: images of a document that have none.
        distractors: captions in a document that were written about none of its images.
        versions: largest number of versions of a training document, each with other captions of its true images.
        val: share of the image groups for validation. The paper's 4,968/1,655/1,655 groups are these shares of
            the 82,783 images of train2014.
        test: share of the image groups for test.
        seed: seed of every draw.
    """

    inputs: ClassVar = (
        Input("captions", published=("captions_train2014.json",), is_needed=True),
        Input("images", "images", is_needed=True),
    )
    captions: tuple[str, ...] = input_path(())
    folders: tuple[str, ...] = ()
    images: str = input_path("")
    true_images: PositiveInt = 5
    fake_images: NonNegativeInt = 5
    distractors: NonNegativeInt = 5
    versions: PositiveInt = 5
    val: Probability = 0.2
    test: Probability = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        Source.__post_init__(self)
        rule = f"expected none, one, or one for each of {len(self.captions)} captions files"
        is_one_each = len(self.folders) in (0, 1, len(self.captions))
        require(is_one_each, field="source.folders", value=self.folders, rule=rule)
        share = self.val + self.test
        require(share < 1, field="source.val + source.test", value=share, rule="must leave a share for training")

    def read(self) -> Outcomes:
        """Yield a failure for each image and caption that cannot be used, then the documents, split by split.

        Image addresses are names relative to `images`. Images that fill no group are failures too (TOO_FEW_IMAGES),
        as are images without caption (TOO_FEW_SENTENCES).

        Raises:
            BuildError: a file is no captions file.
            NotFoundError: there is no such file.
        """
        tables = _Tables()
        folders = self.folders * len(self.captions) if len(self.folders) == 1 else self.folders
        for index, path in enumerate(self.captions):
            yield from _read_file(path, index, folders[index] if folders else "", tables)
        captions = {image: _shuffled(tables.captions.get(image, {}), image, self.seed) for image in sorted(tables.uris)}
        for image in [image for image, texts in captions.items() if not texts]:
            del captions[image]
            yield rejected(
                f"image {image % MAX_ID}", Reason.TOO_FEW_SENTENCES, "expected a caption of the image, found none"
            )
        groups, left_over = group_images(captions, true=self.true_images, fake=self.fake_images, seed=self.seed)
        for image in left_over:
            message = f"too few images are left for {self.true_images} with and {self.fake_images} without captions"
            yield rejected(f"image {image % MAX_ID}", Reason.TOO_FEW_IMAGES, message)
        for split, members in split_groups(groups, val=self.val, test=self.test, seed=self.seed).items():
            yield from self._documents(split, members, captions, tables)

    def _documents(
        self, split: Split, groups: Sequence[ImageGroup], captions: Captions, tables: _Tables
    ) -> Iterator[CandidateDocument | Failure]:
        """Yield the versions of each group's document: its sentences and images in an order that tells nothing."""
        seed, wanted, most = self.seed, self.distractors, self.versions if split is Split.TRAIN else 1
        pool = CaptionPool({image: captions[image] for image in sorted(image for g in groups for image in g.images)})
        for group in groups:
            for version in range(min(most, *(len(captions[image]) for image in group.true))):
                document_id = f"{group.id}-v{version}"
                drawn = pool.distractors(wanted, images=group.images, seed=seed, key=document_id)
                if len(drawn) < wanted:
                    message = f"expected {wanted} captions of other images of the {split} split, found {len(drawn)}"
                    yield rejected(document_id, Reason.TOO_FEW_SENTENCES, message)
                    continue
                texts = [captions[image][version] for image in group.true] + drawn  # text i is about true image i
                sentences = shuffled_order(len(texts), seed=seed, key=document_id)
                images = shuffled_order(len(group.images), seed=seed, key=group.id)
                shown = [group.images[index] for index in images]
                yield CandidateDocument(
                    id=document_id,
                    dataset=DATASET,
                    sentences=tuple(Sentence(texts[index]) for index in sentences),
                    images=tuple(
                        CandidateImage(
                            tables.uris[image][1],
                            None,
                            tables.licences.get(tables.licensed.get(image, (-1, -1))) or None,
                        )
                        for image in shown
                    ),
                    links=tuple(sorted(Link(sentences.index(i), images.index(i)) for i in range(len(group.true)))),
                    provenance=Provenance(DATASET, group.id),
                    language="en",
                    split=split,
                )


@dataclass(frozen=True, slots=True)
class ImageGroup:
    """The images of a document: those that have a caption in it, and those that have none."""

    true: tuple[int, ...]
    fake: tuple[int, ...]

    @property
    def images(self) -> tuple[int, ...]:
        return self.true + self.fake

    @property
    def id(self) -> str:
        """Hash of the image ids; the same for all versions of a document."""
        true, fake = (",".join(map(str, sorted(images))) for images in (self.true, self.fake))
        return hashlib.sha256(f"{true};{fake}".encode()).hexdigest()[:16]


@dataclass(slots=True)
class _Tables:
    """What the files say, by number, each with the number of the file that says so.

    The number of an image or a caption is its id; where another thing of another file has that, so much more that it
    is no id.

    Attributes:
        numbers: of images, by the number of a file and their id in it.
        named: of images, by name.
        uris: the images' names.
        captions: by image, by their own number.
        licensed: the number of each image's licence.
        licences: by number of a file and of the licence.
    """

    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    uris: dict[int, NumberedText] = field(default_factory=dict)
    captions: dict[int, dict[int, NumberedText]] = field(default_factory=dict)
    licensed: dict[int, tuple[int, int]] = field(default_factory=dict)
    licences: dict[tuple[int, int], str] = field(default_factory=dict)


def group_images(image_ids: Collection[int], *, true: int, fake: int, seed: int) -> tuple[list[ImageGroup], list[int]]:
    """Return groups of `true` and `fake` images, and the images that are left over.

    Half of the images are true, half are fake; each is in one group at most.
    """
    ranked = sorted(image_ids, key=lambda image: (hashed(seed, "image", image), image))
    half = len(ranked) // 2 if fake else len(ranked)
    trues, fakes = ranked[:half], ranked[half:]
    count = min(len(trues) // true, len(fakes) // fake if fake else len(trues))
    groups = [
        ImageGroup(tuple(trues[index * true : (index + 1) * true]), tuple(fakes[index * fake : (index + 1) * fake]))
        for index in range(count)
    ]
    return groups, trues[count * true :] + fakes[count * fake :]


def split_groups(
    groups: Sequence[ImageGroup], *, val: float, test: float, seed: int
) -> Mapping[Split, Sequence[ImageGroup]]:
    """Return the groups of each split; the shares are met exactly, rounded down for `val` and `test`."""
    ranked = sorted(groups, key=lambda group: (hashed(seed, "split", group.id), group.id))
    tests, vals = int(len(ranked) * test), int(len(ranked) * val)
    return {
        Split.TRAIN: ranked[tests + vals :],
        Split.VAL: ranked[tests : tests + vals],
        Split.TEST: ranked[:tests],
    }


def _read_file(path: str, file: int, folder: str, tables: _Tables) -> Iterator[Failure]:
    """Add what a file says to the tables; yield what cannot be used, and what came before."""

    def add(listed: tuple[str, Any], _: str) -> Iterator[Failure]:
        name, item = listed
        record = typed(item, _LISTS[name], is_lax=True)
        if isinstance(record, _Licence):
            tables.licences[file, record.id] = record.url or record.name
        elif isinstance(record, _Image):
            uri = f"{folder.strip('/')}/{file_name(record.file_name, '$.file_name')}".lstrip("/")
            image = tables.named.setdefault(uri, _free(tables.uris, record.id, (file, uri)))
            yield from _add(tables.uris, image, (file, uri), "image")
            tables.numbers[file, record.id] = image
            if isinstance(record.license, int):
                tables.licensed.setdefault(image, (file, record.license))
        else:
            key, text = (file, record.image_id), caption_text(record.caption, "$.caption")
            if key not in tables.numbers:
                raise FieldError(Reason.NOT_FOUND, f"expected an image {record.image_id} among 'images', found none")
            captions = tables.captions.setdefault(tables.numbers[key], {})
            yield from _add(captions, _free(captions, record.id, (file, text)), (file, text), "caption")

    return outcomes_of(read_lists(path, *_LISTS, needed=("images", "annotations")), add, _record_id)


def _record_id(listed: tuple[str, object]) -> str:
    """Return what to call a record that cannot be used: by its id."""
    name, item = listed
    return f"{name.removesuffix('s').replace('annotation', 'caption')} {typed(item, _Numbered, is_lax=True).id}"


def _free(table: Mapping[int, NumberedText], key: int, value: NumberedText) -> int:
    """Return an id, or so much more that it is not the number of another thing of another file."""
    while key in table and table[key][0] != value[0] and table[key][1] != value[1]:
        key += MAX_ID
    return key


def _add(table: dict[int, NumberedText], key: int, value: NumberedText, what: str) -> Iterator[Failure]:
    """Add what a file says of a key; the first file's stays, and of two values in one file the one that sorts first."""
    if key in table:
        yield rejected(
            f"{what} {key % MAX_ID}", Reason.DUPLICATE_RECORD, f"expected one {what} of this id, found another"
        )
    table[key] = min(value, table.get(key, value))


def _shuffled(captions: Mapping[int, NumberedText], image: int, seed: int) -> list[str]:
    return [captions[key][1] for key in sorted(captions, key=lambda key: (hashed(seed, "caption", image, key), key))]


def mscoco() -> BuildConfig:
    """Ten-image documents of captioned images and images whose captions are withheld (Hessel 2019, suppl. 1)."""
    return as_published("mscoco", MscocoSource())


RECIPES = {"mscoco": mscoco}
