"""Visual Storytelling (VIST): five photos of an album and five sentences, one about each, in the published splits.

    {"images": [{"id": "4205651585", "album_id": "...", ...}], "albums": [...],
     "annotations": [[{"photo_flickr_id": "4205651585", "original_text": "...", "text": "...", ...}], ...]}

Stories in sequence have a `story_id` and a `worker_arranged_photo_order`. Descriptions in isolation have only a
`photo_order_in_story`: they are in the file's order, and a story starts where it returns to 0. How a story becomes a
document is here; how annotations become stories is in `stories.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.sources.candidate import CandidateDocument, stated
from pipelines.sources.crowd_settings import StoryKind, VistSource
from pipelines.sources.distractors import CaptionPool, shuffled_order
from pipelines.sources.stories import Story, read_stories
from schemas.configs import require
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.failures import Failure, Reason, Stage

LANGUAGE = "en"


def read_vist(source: VistSource) -> Iterator[CandidateDocument | Failure]:
    """Yield, split by split, a failure for each annotation and story that cannot be used, then the drafts by id.

    Image addresses are `<split>/<photo id>.jpg`, relative to `source.images`. A story whose photo is not in the file's
    list is dropped (NOT_FOUND); whether the photo itself is there, and is one, only the images stage can tell.

    Raises:
        BuildError: a file is not in VIST's format.
        ConfigError: no file is named.
        FileNotFoundError: there is no such file.
    """
    paths = {Split.TRAIN: source.train, Split.VAL: source.val, Split.TEST: source.test}
    named = {split: path for split, path in paths.items() if path}
    require(bool(named), field="source.train", value=source.train, rule="expected a file of at least one split")
    seen: set[str] = set()
    for split, path in named.items():
        stories: list[Story] = []
        for story in read_stories(path, source):
            if isinstance(story, Failure):
                yield story
            elif story.id in seen:
                message = "expected one story of this id, found another"
                yield Failure(Stage.SOURCES, story.id, Reason.DUPLICATE_RECORD, message)
            else:
                seen.add(story.id)
                stories.append(story)
        yield from _drafts(sorted(stories, key=_id), split, source)


def _id(story: Story) -> str:
    return story.id


def _drafts(stories: Sequence[Story], split: Split, source: VistSource) -> Iterator[CandidateDocument | Failure]:
    if source.kind is not StoryKind.DII_STRESS:
        for story in stories:
            yield _draft(story, story.texts, range(len(story.texts)), split, source)
        return
    pool = caption_pool(stories)
    for story in stories:
        wanted = source.distractors
        distractors = pool.distractors(wanted, images=story.photos, seed=source.seed, key=story.id)
        if len(distractors) < wanted:
            message = f"expected {wanted} captions of other photos of the {split} split, found {len(distractors)}"
            yield Failure(Stage.SOURCES, story.id, Reason.TOO_FEW_SENTENCES, message)
            continue
        texts = (*story.texts, *distractors)
        yield _draft(story, texts, shuffled_order(len(texts), seed=source.seed, key=story.id), split, source)


def caption_pool(stories: Sequence[Story]) -> CaptionPool[str]:
    """Return the captions of all stories by photo; each of a photo's captions counts as often as it was written."""
    captions: dict[str, list[str]] = {}
    for story in stories:
        for photo, text in zip(story.photos, story.texts, strict=True):
            captions.setdefault(photo, []).append(text)
    return CaptionPool((photo, captions[photo]) for photo in sorted(captions))


def _draft(
    story: Story, texts: Sequence[str], order: Sequence[int], split: Split, source: VistSource
) -> CandidateDocument:
    """Return the document of a story; text i is about photo i, and sentence j of the document is text `order[j]`."""
    photos = range(len(story.photos))
    return CandidateDocument(
        id=story.id,
        dataset=source.dataset,
        sentences=tuple(Sentence(texts[index]) for index in order),
        image_uris=tuple(f"{split}/{photo}.jpg" for photo in story.photos),
        links=tuple(Link(sentence, index) for sentence, index in enumerate(order) if index in photos),
        provenance=Provenance("vist", story.record_id),
        language=LANGUAGE,
        split=split,
        image_licences=stated(story.licences),
    )
