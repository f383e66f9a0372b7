"""Stories of a VIST file: annotations put together, by their ids (SIS) or by their order in the file (DII).

A story whose photos are not all there is no document: its one failure row says what is wrong with it. An annotation
that cannot be assigned to any story (no order, no story id) has its own row, and its story is then one short.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.sources.captions import caption_text, file_name, number
from pipelines.sources.crowd_settings import StoryKind, StoryText, VistSource
from pipelines.sources.fields import FieldError, checked
from pipelines.sources.json_streams import read_lists
from pipelines.sources.openings import BrokenInputError, Place, input_file
from schemas.errors import BuildError
from schemas.failures import Failure, Reason, Stage

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

_Licences = Mapping[str, str | None]  # of the photos that a file lists, by id


@dataclass(frozen=True, slots=True)
class Story:
    """Photos in their order, and the text about each.

    Attributes:
        record_id: the story's own id (SIS), or that of its document.
        licences: of the photos, where the file states them.
    """

    id: str
    record_id: str
    photos: tuple[str, ...]
    texts: tuple[str, ...]
    licences: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class _Annotation:
    """One annotation; `problem` says why its story cannot be used."""

    story_id: str | None
    order: int
    photo: str = ""
    text: str = ""
    problem: FieldError | None = None

    def is_repeat_of(self, other: _Annotation) -> bool:
        return self.problem is None and self == other


def read_stories(place: Place, source: VistSource) -> Iterator[Story | Failure]:
    """Yield the stories of a file, and a failure for each story and annotation that cannot be used.

    Raises:
        BuildError: the file has no images or no annotations.
        FileNotFoundError: there is no such file.
    """
    file = input_file(place)
    photos: dict[str, str | None] = {}
    annotations: list[_Annotation] = []
    seen: set[str] = set()
    seen_annotations = 0
    try:
        for name, item in read_lists(file):
            seen.add(name)
            place_in_file = f"{file.name}#{seen_annotations + 1}"
            try:
                if name == "images":
                    image: dict[str, Any] = checked(item, dict, "an image")
                    photos[file_name(image, "id")] = FLICKR_LICENCES.get(str(image.get("license")))
                elif name == "annotations":
                    seen_annotations += 1
                    annotations.append(_annotation(item, source))
            except FieldError as problem:
                yield problem.failure(f"{place_in_file} ({name})" if name == "annotations" else f"{file.name} (image)")
    except BrokenInputError as problem:
        yield problem.failure()
    else:
        if not {"images", "annotations"} <= seen:
            raise BuildError(f"{file}: expected the lists 'images' and 'annotations', found {', '.join(sorted(seen))}")
    assemble = _by_story_id if source.kind is StoryKind.SIS else _by_order
    for members in assemble(annotations):
        yield from _story(members, photos, source)


def _annotation(item: object, source: VistSource) -> _Annotation:
    """Return an annotation that has its place in a story.

    Raises:
        FieldError: it has none.
    """
    inner = item[0] if isinstance(item, list) and len(item) == 1 else item
    record: dict[str, Any] = checked(inner, dict, "an annotation")
    is_sequence = source.kind is StoryKind.SIS
    order = number(record, "worker_arranged_photo_order" if is_sequence else "photo_order_in_story")
    story_id = file_name(record, "story_id") if is_sequence else None
    other = StoryText.TOKENIZED if source.text is StoryText.ORIGINAL else StoryText.ORIGINAL
    try:
        return _Annotation(
            story_id, order, file_name(record, "photo_flickr_id"), caption_text(record, source.text, other)
        )
    except FieldError as problem:
        return _Annotation(story_id, order, problem=problem)


def _by_story_id(annotations: Sequence[_Annotation]) -> Iterator[list[_Annotation]]:
    stories: dict[str, list[_Annotation]] = {}
    for annotation in annotations:
        stories.setdefault(annotation.story_id or "", []).append(annotation)
    for story_id in sorted(stories):
        yield sorted(stories[story_id], key=lambda member: (member.order, member.photo, member.text))


def _by_order(annotations: Sequence[_Annotation]) -> Iterator[list[_Annotation]]:
    """Yield runs of annotations in file order; a new one starts at 0, and where the order does not go on upwards.

    0 1 2 3 4 | 0 1 2 3 4 | 0 1 3 4 | 1 2 3 4      the last two are of broken stories
    """
    run: list[_Annotation] = []
    for annotation in annotations:
        is_repeat = bool(run) and annotation.is_repeat_of(run[-1])
        if run and not is_repeat and (annotation.order == 0 or annotation.order <= run[-1].order):
            yield run
            run = []
        run.append(annotation)
    if run:
        yield run


def _story(members: Sequence[_Annotation], photos: _Licences, source: VistSource) -> Iterator[Story | Failure]:
    """Yield a story, or why there is none; before it a failure for each annotation that only repeats another."""
    kept = [member for index, member in enumerate(members) if not (index and member.is_repeat_of(members[index - 1]))]
    story = Story(
        id=(document_id := _document_id(kept)),
        record_id=kept[0].story_id or document_id,
        photos=tuple(member.photo for member in kept),
        texts=tuple(member.text for member in kept),
        licences=tuple(photos.get(member.photo) for member in kept),
    )
    for _ in range(len(members) - len(kept)):
        message = "expected an annotation once, found it repeated"
        yield Failure(Stage.SOURCES, story.id, Reason.DUPLICATE_RECORD, message)
    reason, message = _problem(kept, photos, wanted=source.photos) or (None, "")
    yield story if reason is None else Failure(Stage.SOURCES, story.id, reason, message)


def _problem(members: Sequence[_Annotation], photos: _Licences, *, wanted: int) -> tuple[Reason, str] | None:
    """Return what keeps annotations from being a story."""
    broken = next((member.problem for member in members if member.problem), None)
    if broken:
        return broken.reason, f"annotation of a photo: {broken}"
    if len(members) != wanted:
        reason = Reason.TOO_FEW_IMAGES if len(members) < wanted else Reason.TOO_MANY_IMAGES
        return reason, f"expected {wanted} photos in a story, found {len(members)}"
    orders = [member.order for member in members]
    if orders != list(range(wanted)):
        return Reason.BROKEN_RECORD, f"expected the photo orders 0 to {wanted - 1}, found {orders}"
    absent = sorted({member.photo for member in members} - photos.keys())
    if absent:
        return Reason.NOT_FOUND, f"expected the photos among 'images', found none of id {', '.join(absent)}"
    if len({member.photo for member in members}) < wanted:
        return Reason.DUPLICATE_IMAGE, f"expected {wanted} different photos, found one twice"
    return None


def _document_id(members: Sequence[_Annotation]) -> str:
    """Return `sis-<story id>`, or for descriptions, which have none, hashes of the photos and of the texts."""
    if members[0].story_id is not None:
        return f"sis-{members[0].story_id}"
    photos = "\x1f".join(member.photo for member in members)
    texts = "\x1f".join(member.text for member in members)
    return f"dii-{_digest(photos, 16)}-{_digest(texts, 8)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
