"""Visual Storytelling (VIST): five photos of an album and five sentences, one about each, in the published splits.

    {"images": [{"id": "4205651585", "album_id": "...", ...}], "albums": [...],
     "annotations": [[{"photo_flickr_id": "4205651585", "original_text": "...", "text": "...", ...}], ...]}

Stories in sequence have a `story_id` and a `worker_arranged_photo_order`. Descriptions in isolation have only a
`photo_order_in_story`: they are in the file's order, and a story starts where it returns to 0. A story whose photos are
not all there is no document: its one failure row says what is wrong with it. An annotation that cannot be used has its
own row, and its story is then one short. Files are streamed; a split's stories are in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from pipelines.sources.candidate import CandidateDocument, sentence, stated
from pipelines.sources.draws import CaptionPool, shuffled_order
from pipelines.sources.inputs import IMAGES, Input, require_least
from pipelines.sources.json_stream import read_lists
from pipelines.sources.records import FieldError, caption_text, checked, identifier, number, outcomes_of
from schemas.documents import Link, Provenance, Split
from schemas.failures import Failure, Reason, Stage

LANGUAGE = "en"
# Flickr's numbers of licences (flickr.photos.licenses.getInfo), which VIST's images carry.
FLICKR_LICENCES: Mapping[str, str] = {
    "0": "All Rights Reserved",
    "1": "CC-BY-NC-SA-2.0",
    "2": "CC-BY-NC-2.0",
    "3": "CC-BY-NC-ND-2.0",
    "4": "CC-BY-2.0",
    "5": "CC-BY-SA-2.0",
    "6": "CC-BY-ND-2.0",
    "7": "No known copyright restrictions",
    "8": "United States Government Work",
    "9": "CC0-1.0",
    "10": "Public Domain Mark",
}


class StoryKind(StrEnum):
    """Which annotations of VIST become documents."""

    DII = "dii"  # descriptions in isolation
    SIS = "sis"  # stories in sequence
    DII_STRESS = "dii-stress"  # `dii` with distractor captions


class StoryText(StrEnum):
    """Which field of an annotation is the sentence; the other one stands in where it is absent."""

    ORIGINAL = "original_text"  # as it was typed
    TOKENIZED = "text"  # lower-cased tokens, names replaced by placeholders


@dataclass(frozen=True, slots=True, kw_only=True)
class VistSource:
    """Stories of the Visual Storytelling data set, in their published splits.

    Attributes:
        kind: which documents to make.
        train: path of the training file (`train.description-in-isolation.json` or `train.story-in-sequence.json`),
            plain or .gz; empty: none.
        val: path of the validation file.
        test: path of the test file.
        images: directory or tar that image names are relative to.
        text: which field is the sentence.
        photos: photos of a story; one of any other number is dropped.
        distractors: captions added to a document of `dii-stress`.
        seed: of every draw.
    """

    kind: StoryKind = StoryKind.DII
    train: str = ""
    val: str = ""
    test: str = ""
    images: str = ""
    text: StoryText = StoryText.ORIGINAL
    photos: int = 5
    distractors: int = 45
    seed: int = 0

    def __post_init__(self) -> None:
        require_least(self, photos=1, distractors=0)

    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read: a file of one split at least."""
        annotations = "story-in-sequence" if self.kind is StoryKind.SIS else "description-in-isolation"
        is_none_named = not (self.train or self.val or self.test)
        files = (Input(split, published=(f"{split}.{annotations}.json",), is_needed=is_none_named) for split in Split)
        return (*files, IMAGES)

    @property
    def dataset(self) -> str:
        """Name of the data set (SPEC 2)."""
        return str(self.kind) if self.kind is StoryKind.DII_STRESS else f"story-{self.kind}"


class _Annotation(NamedTuple):
    order: int
    photo: str
    text: str
    story_id: str


def read(source: VistSource) -> Iterator[CandidateDocument | Failure]:
    """Yield, split by split, a failure for each annotation and story that cannot be used, then the documents by id.

    Image addresses are `<split>/<photo id>.jpg`, relative to `source.images`. A story whose photo is not in the file's
    list is dropped (NOT_FOUND); whether the photo itself is there, and is one, only the images stage can tell.

    Raises:
        BuildError: a file is not in VIST's format.
        NotFoundError: there is no such file.
    """
    for split in Split:
        found = list(_stories(getattr(source, split), split, source)) if getattr(source, split) else []
        yield from (outcome for outcome in found if isinstance(outcome, Failure))
        stories = sorted((outcome for outcome in found if isinstance(outcome, CandidateDocument)), key=attrgetter("id"))
        yield from _stressed(stories, source) if source.kind is StoryKind.DII_STRESS else stories


def _stressed(stories: Sequence[CandidateDocument], source: VistSource) -> Iterator[CandidateDocument | Failure]:
    """Yield stories with captions of other photos of their split, in an order that tells nothing."""
    captions: dict[str, list[str]] = {}
    for story in stories:
        for photo, text in zip(story.image_uris, story.sentences, strict=True):
            captions.setdefault(photo, []).append(text.text)
    pool = CaptionPool({photo: captions[photo] for photo in sorted(captions)})
    for story in stories:
        drawn = pool.distractors(source.distractors, images=story.image_uris, seed=source.seed, key=story.id)
        if len(drawn) < source.distractors:
            yield Failure(
                Stage.SOURCES,
                story.id,
                Reason.TOO_FEW_SENTENCES,
                f"expected {source.distractors} captions of other photos of the split, found {len(drawn)}",
            )
            continue
        sentences = (*story.sentences, *map(sentence, drawn))
        order = shuffled_order(len(sentences), seed=source.seed, key=story.id)
        links = (Link(position, index) for position, index in enumerate(order) if index < len(story.image_uris))
        yield replace(story, sentences=tuple(sentences[index] for index in order), links=tuple(links))


def _stories(path: str, split: Split, source: VistSource) -> Iterator[CandidateDocument | Failure]:
    """Yield the stories of a file, and a failure for each story and annotation that cannot be used."""
    licences: dict[str, str | None] = {}
    annotations: list[_Annotation] = []

    def add(listed: tuple[str, object], _: str) -> Sequence[Failure]:
        name, item = listed
        if name == "annotations":
            annotations.append(_annotation(item, source))
        else:
            image: dict[str, Any] = checked(item, dict, "an image")
            licences[identifier(image)] = FLICKR_LICENCES.get(str(image.get("license")))
        return ()

    names = ("images", "annotations")
    yield from outcomes_of(read_lists(path, *names, needed=names), add)
    for members in _by_story_id(annotations) if source.kind is StoryKind.SIS else _by_order(annotations):
        kept = list(dict.fromkeys(members))
        story = _story(kept, licences, split, source)
        for _ in range(len(members) - len(kept)):
            yield Failure(
                Stage.SOURCES, story.id, Reason.DUPLICATE_RECORD, "expected an annotation once, found it repeated"
            )
        try:
            _check(kept, licences, wanted=source.photos)
            yield story
        except FieldError as problem:
            yield problem.failure(story.id)


def _annotation(item: object, source: VistSource) -> _Annotation:
    """Return an annotation.

    Raises:
        FieldError: it cannot be used; its story is then one short.
    """
    inner = item[0] if isinstance(item, list) and len(item) == 1 else item
    record: dict[str, Any] = checked(inner, dict, "an annotation")
    is_sequence = source.kind is StoryKind.SIS
    other = StoryText.TOKENIZED if source.text is StoryText.ORIGINAL else StoryText.ORIGINAL
    return _Annotation(
        number(record, "worker_arranged_photo_order" if is_sequence else "photo_order_in_story"),
        identifier(record, "photo_flickr_id"),
        caption_text(record, str(source.text), str(other)),
        identifier(record, "story_id") if is_sequence else "",
    )


def _by_story_id(annotations: Sequence[_Annotation]) -> Iterator[list[_Annotation]]:
    stories: dict[str, list[_Annotation]] = {}
    for annotation in annotations:
        stories.setdefault(annotation.story_id, []).append(annotation)
    return map(sorted, stories.values())


def _by_order(annotations: Sequence[_Annotation]) -> Iterator[list[_Annotation]]:
    """Yield runs of annotations in file order; a new one starts at 0, and where the order does not go on upwards.

    0 1 2 3 4 | 0 1 2 3 4 | 0 1 3 4 | 1 2 3 4      the last two are of broken stories
    """
    run: list[_Annotation] = []
    for annotation in annotations:
        if run and annotation != run[-1] and annotation.order <= run[-1].order:
            yield run
            run = []
        run.append(annotation)
    if run:
        yield run


def _check(members: Sequence[_Annotation], photos: Mapping[str, str | None], *, wanted: int) -> None:
    """Raise a `FieldError` that says what keeps annotations from being a story."""
    orders = [member.order for member in members]
    if orders != list(range(wanted)):
        reason = Reason.TOO_FEW_IMAGES if len(members) < wanted else Reason.BROKEN_RECORD
        raise FieldError(reason, f"expected the photo orders 0 to {wanted - 1}, found {orders}")
    named = {member.photo for member in members}
    if absent := sorted(named - photos.keys()):
        raise FieldError(Reason.NOT_FOUND, f"expected the photos among 'images', found none of id {', '.join(absent)}")
    if len(named) < wanted:
        raise FieldError(Reason.DUPLICATE_IMAGE, f"expected {wanted} different photos, found one twice")


def _story(
    members: Sequence[_Annotation], licences: Mapping[str, str | None], split: Split, source: VistSource
) -> CandidateDocument:
    """Return the document of a story: sentence i is about photo i.

    Its id is `sis-<story id>`, or for descriptions, which have none, hashes of the photos and of the texts.
    """
    story_id = members[0].story_id
    photos, texts = (
        "\x1f".join(parts) for parts in zip(*((member.photo, member.text) for member in members), strict=True)
    )
    document_id = f"sis-{story_id}" if story_id else f"dii-{_digest(photos)[:16]}-{_digest(texts)[:8]}"
    return CandidateDocument(
        id=document_id,
        dataset=source.dataset,
        sentences=tuple(sentence(member.text) for member in members),
        image_uris=tuple(f"{split}/{member.photo}.jpg" for member in members),
        links=tuple(Link(index, index) for index in range(len(members))),
        provenance=Provenance("vist", story_id or document_id),
        language=LANGUAGE,
        split=split,
        image_licences=stated(licences.get(member.photo) for member in members),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
