"""Settings of the crowd-labelled sources, MSCOCO and VIST (SPEC 2); defaults as in Hessel 2019, supplement 1."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schemas.configs import require


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
class MscocoSource:
    """Documents made of captioned images and as many images whose captions are withheld.

    Attributes:
        captions: paths of the captions files (`captions_train2014.json`, ...), plain or .gz. An image or a caption that
            several of them hold counts once, as the first one listed says.
        folders: the folder under `images` that a captions file's images are in (`train2014`), one for each file or one
            for all; none: they lie in `images` itself.
        images: directory or tar that image names are relative to.
        true_images: images of a document that have a caption in it.
        fake_images: images of a document that have none.
        distractors: captions in a document that were written about none of its images.
        versions: a training document comes in at most so many, each with other captions of its true images.
        val: share of the image groups for validation. The paper's 4,968/1,655/1,655 groups are these shares of
            the 82,783 images of train2014.
        test: share of the image groups for test.
        seed: of every draw.
    """

    captions: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    images: str = ""
    true_images: int = 5
    fake_images: int = 5
    distractors: int = 5
    versions: int = 5
    val: float = 0.2
    test: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("true_images", 1), ("fake_images", 0), ("distractors", 0), ("versions", 1)):
            value = getattr(self, name)
            require(value >= least, field=f"source.{name}", value=value, rule=f"must be at least {least}")
        require(
            len(self.folders) in (0, 1, len(self.captions)),
            field="source.folders",
            value=self.folders,
            rule=f"expected none, one, or one for each of {len(self.captions)} captions files",
        )
        for name in ("val", "test"):
            share = getattr(self, name)
            require(0 <= share < 1, field=f"source.{name}", value=share, rule="must be in [0, 1)")
        total = self.val + self.test
        require(total < 1, field="source.val + source.test", value=total, rule="must leave a share for training")

    def folder(self, file_number: int) -> str:
        """Return the folder of the images that the captions file of that number (from 0) describes."""
        if not self.folders:
            return ""
        return self.folders[0] if len(self.folders) == 1 else self.folders[file_number]


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
        require(self.photos >= 1, field="source.photos", value=self.photos, rule="must be at least 1")
        require(self.distractors >= 0, field="source.distractors", value=self.distractors, rule="must be at least 0")

    @property
    def annotations(self) -> str:
        """Return what VIST's files are named after, `<split>.<annotations>.json`."""
        return "story-in-sequence" if self.kind is StoryKind.SIS else "description-in-isolation"

    @property
    def dataset(self) -> str:
        """Name of the data set (SPEC 2)."""
        return str(self.kind) if self.kind is StoryKind.DII_STRESS else f"story-{self.kind}"
