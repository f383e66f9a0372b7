"""Visual Storytelling (VIST): five photos of an album and five sentences, one about each, in the published splits.

    {"images": [{"id": "4205651585", "album_id": "...", ...}], "albums": [...],
     "annotations": [[{"photo_flickr_id": "4205651585", "original_text": "...", "text": "...", ...}], ...]}

Stories in sequence have a `story_id` and a `worker_arranged_photo_order`. Descriptions in isolation have only a
`photo_order_in_story`: they are in the file's order, and a story starts where it returns to 0. A story whose photos are
not all there is no document: its one failure row says what is wrong with it. An annotation that cannot be used has its
own row, and its story is then one short. The sentence is the text
as it was typed; the tokenized one stands in where that is absent.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import msgspec

from pipelines.recipe import BuildConfig, as_published
from pipelines.sources.draws import CaptionPool, shuffled_order
from pipelines.sources.fields import Name, Number, caption_text, typed
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, outcomes_of, rejected, sentence
from pipelines.sources.rows import read_lists
from pipelines.sources.source import IMAGES, Input, Outcomes, Source, input_path
from schemas.configs import NonNegativeInt
from schemas.documents import Link, Provenance, Split
from schemas.failures import Failure, Reason

PHOTOS = 5  # of a story
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VistSource(Source):
    """Stories of the Visual Storytelling data set, in their published splits.

    Attributes:
        kind: which documents to make: `dii` of descriptions in isolation, `sis` of stories in sequence, `dii-stress`
            of descriptions with distractor captions.
        train: path of the training file (`train.description-in-isolation.json` or `train.story-in-sequence.json`),
            plain or .gz; empty: none.
        val: path of the validation file.
        test: path of the test file.
        images: directory or tar that image names are relative to.
        distractors: captions added to a document of `dii-stress`.
        seed: seed of every draw.
    """

    kind: Literal["dii", "sis", "dii-stress"] = "dii"
    train: str = input_path("")
    val: str = input_path("")
    test: str = input_path("")
    images: str = input_path("")
    distractors: NonNegativeInt = 45
    seed: int = 0

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read: a file of one split at least."""
        annotations = "story-in-sequence" if self.kind == "sis" else "description-in-isolation"
        is_none_named = not (self.train or self.val or self.test)
        files = (Input(split, published=(f"{split}.{annotations}.json",), is_needed=is_none_named) for split in Split)
        return (*files, IMAGES)

    def read(self) -> Outcomes:
        """Yield, split by split, a failure for each annotation and story that cannot be used, then documents by id.

        Image addresses are `<split>/<photo id>.jpg`, relative to `images`. A story whose photo is not in the file's
        list is dropped (NOT_FOUND); whether the photo itself is there, and is one, only the images stage can tell.

        Raises:
            BuildError: a file is not in VIST's format.
            NotFoundError: there is no such file.
        """
        taken: set[str] = set()
        for split in Split:
            found = list(_stories(getattr(self, split), split, self, taken))
            yield from (outcome for outcome in found if isinstance(outcome, Failure))
            stories = [outcome for outcome in found if isinstance(outcome, CandidateDocument)]
            stories.sort(key=attrgetter("id"))
            yield from _stressed(stories, self) if self.kind == "dii-stress" else stories


class _Image(msgspec.Struct):
    id: Name
    license: Any = None


class _Published(msgspec.Struct):
    """An annotation, as it is published: in isolation or in sequence."""

    photo_flickr_id: Name
    photo_order_in_story: Number | None = None
    worker_arranged_photo_order: Number | None = None
    story_id: Name | None = None
    original_text: str | None = None
    text: str | None = None


class _Annotation(NamedTuple):
    order: int
    photo: str
    text: str
    story_id: str


def _stressed(stories: Sequence[CandidateDocument], source: VistSource) -> Iterator[CandidateDocument | Failure]:
    """Yield stories with captions of other photos of their split, in an order that tells nothing."""
    captions: dict[str, list[str]] = {}
    for story in stories:
        for photo, text in zip(story.images, story.sentences, strict=True):
            captions.setdefault(photo.uri, []).append(text.text)
    pool = CaptionPool(dict(sorted(captions.items())))
    for story in stories:
        photos = [image.uri for image in story.images]
        drawn = pool.distractors(source.distractors, images=photos, seed=source.seed, key=story.id)
        if len(drawn) < source.distractors:
            expected = f"expected {source.distractors} captions of other photos of the split"
            yield rejected(story.id, Reason.TOO_FEW_SENTENCES, f"{expected}, found {len(drawn)}")
            continue
        sentences = (*story.sentences, *map(sentence, drawn))
        order = shuffled_order(len(sentences), seed=source.seed, key=story.id)
        links = (Link(position, index) for position, index in enumerate(order) if index < len(photos))
        # In a shuffled order no place tells anything.
        images = tuple(replace(image, after=None) for image in story.images)
        yield replace(story, sentences=tuple(sentences[index] for index in order), links=tuple(links), images=images)


def _stories(path: str, split: Split, source: VistSource, taken: set[str]) -> Iterator[CandidateDocument | Failure]:
    """Yield the stories of a file, if there is one, and a failure for each story and annotation that cannot be used.

    The id of a story that another split's has begins with its split. `taken` are those; this file's are added.
    """
    licences: dict[str, str | None] = {}
    annotations: list[_Annotation] = []
    ids: set[str] = set()

    def add(listed: tuple[str, object], _: str) -> Sequence[Failure]:
        name, item = listed
        if name == "annotations":
            annotations.append(_annotation(item, is_sequence=source.kind == "sis"))
        else:
            image = typed(item, _Image)
            licences[str(image.id).strip()] = FLICKR_LICENCES.get(str(image.license))
        return ()

    names = ("images", "annotations")
    yield from outcomes_of(read_lists(path, *names, needed=names), add) if path else ()
    for members in _by_story_id(annotations) if source.kind == "sis" else _by_order(annotations):
        kept = list(dict.fromkeys(members))
        story = _story(kept, licences, split, "dii-stress" if source.kind == "dii-stress" else f"story-{source.kind}")
        if story.id in taken and source.kind == "sis":
            story = replace(story, id=f"{split}-{story.id}")
        ids.add(story.id)
        for _ in range(len(members) - len(kept)):
            yield rejected(story.id, Reason.DUPLICATE_RECORD, "expected an annotation once, found it repeated")
        problem = _problem(kept, licences)
        yield problem.failure(story.id) if problem else story
    taken |= ids


def _annotation(item: object, *, is_sequence: bool) -> _Annotation:
    """Return an annotation.

    Raises:
        FieldError: it cannot be used; its story is then one short.
    """
    record = typed(item[0] if isinstance(item, list) and len(item) == 1 else item, _Published, is_lax=True)
    name = "worker_arranged_photo_order" if is_sequence else "photo_order_in_story"
    return _Annotation(
        typed(getattr(record, name), Number, f"$.{name}"),
        str(record.photo_flickr_id).strip(),
        caption_text(record.text if record.original_text is None else record.original_text, "$.original_text"),
        str(typed(record.story_id, Name, "$.story_id")).strip() if is_sequence else "",
    )


def _by_story_id(annotations: Iterable[_Annotation]) -> Iterator[list[_Annotation]]:
    stories: dict[str, list[_Annotation]] = {}
    for annotation in annotations:
        stories.setdefault(annotation.story_id, []).append(annotation)
    return map(sorted, stories.values())


def _by_order(annotations: Iterable[_Annotation]) -> Iterator[list[_Annotation]]:
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


def _problem(members: Sequence[_Annotation], photos: Mapping[str, str | None]) -> FieldError | None:
    """Return what keeps annotations from being a story."""
    orders = [member.order for member in members]
    named = {member.photo for member in members}
    if orders != list(range(PHOTOS)):
        reason = Reason.TOO_FEW_IMAGES if len(members) < PHOTOS else Reason.BROKEN_RECORD
        return FieldError(reason, f"expected the photo orders 0 to {PHOTOS - 1}, found {orders}")
    if absent := ", ".join(sorted(named - photos.keys())):
        return FieldError(Reason.NOT_FOUND, f"expected the photos among 'images', found none of id {absent}")
    if len(named) < PHOTOS:
        return FieldError(Reason.DUPLICATE_IMAGE, f"expected {PHOTOS} different photos, found one twice")
    return None


def _story(
    members: Sequence[_Annotation], licences: Mapping[str, str | None], split: Split, dataset: str
) -> CandidateDocument:
    """Return the document of a story: sentence i is about photo i, and stands beside it.

    Its id is `sis-<story id>`, or for descriptions, which have none, hashes of the photos and of the texts.
    """
    story_id = members[0].story_id
    photos, texts = ("\x1f".join(getattr(member, name) for member in members) for name in ("photo", "text"))
    document_id = f"sis-{story_id}" if story_id else f"dii-{_digest(photos)[:16]}-{_digest(texts)[:8]}"
    return CandidateDocument(
        id=document_id,
        dataset=dataset,
        sentences=tuple(sentence(member.text) for member in members),
        images=tuple(
            CandidateImage(f"{split}/{member.photo}.jpg", None, licences.get(member.photo), after=index)
            for index, member in enumerate(members)
        ),
        links=tuple(Link(index, index) for index in range(len(members))),
        provenance=Provenance("vist", story_id or document_id),
        language="en",
        split=split,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def story_dii() -> BuildConfig:
    """VIST's descriptions in isolation: five photos, a description each."""
    return as_published("story-dii", VistSource(kind="dii"))


def story_sis() -> BuildConfig:
    """VIST's stories in sequence: five photos, a sentence of the story each."""
    return as_published("story-sis", VistSource(kind="sis"))


def dii_stress() -> BuildConfig:
    """story-dii with 45 captions of other photos in every document."""
    return as_published("dii-stress", VistSource(kind="dii-stress"))


RECIPES = {"story-dii": story_dii, "story-sis": story_sis, "dii-stress": dii_stress}
