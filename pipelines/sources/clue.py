"""CLUE: captions and images of Conceptual Captions, and what people saw between them (Alikhani 2022; SPEC 2).

    conceptual_{train,test}_dis.csv   ,index,caption,url,Visible,Subjective,Action,Story,Meta,Irrelevant,Other,When,...
    img2idxmap.json                   {url: number}; the authors' copy of an image is `<number>.jpg`

Labels are 0 or 1. The published split is kept although 610 of the 1,512 test rows share their image with training
rows: the build reports such leaks, and with `splits.on_leak=drop splits.leak_kinds=images-exact` drops those training
rows (`pipelines.splits.leaks`). The CSV files are streamed; the numbers are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.coherence import Row, read_pairs
from pipelines.sources.draws import share_of
from pipelines.sources.inputs import IMAGES, Input, needed, require_placeholder, require_share
from pipelines.sources.json_stream import read_mapping
from pipelines.sources.records import WEB, FieldError
from schemas.configs import require
from schemas.documents import Split
from schemas.failures import Failure, Reason

RELATIONS: Mapping[str, tuple[str, ...]] = {
    name.lower(): (name,) for name in ("Visible", "Subjective", "Action", "Story", "Meta", "Irrelevant")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClueSource:
    """CLUE's two files, and the images that its authors fetched, if there are any.

    Attributes:
        train: path of `conceptual_train_dis.csv`.
        test: path of `conceptual_test_dis.csv`; empty: no test split.
        numbers: path of `img2idxmap.json` (URL -> number); empty: images are fetched from their URLs.
        images: folder or tar of the numbered images; needed with `numbers`.
        image_pattern: where an image is below `images`.
        val_share: of the training rows, for validation (A: 10%).
        seed: of that choice.
    """

    train: str = ""
    test: str = ""
    numbers: str = ""
    images: str = ""
    image_pattern: str = "{number}.jpg"
    val_share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require_placeholder(self.image_pattern, "{number}")
        require_share("val_share", self.val_share)
        has_root = bool(self.images) or not self.numbers
        require(has_root, field="source.images", value=self.images, rule="must be given with source.numbers")

    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        test = Input("test", published=("conceptual_test_dis.csv",))
        numbers = Input("numbers", published=("img2idxmap.json",))
        return needed("train", "conceptual_train_dis.csv"), test, numbers, IMAGES


def read(source: ClueSource) -> Iterator[CandidateDocument | Failure]:
    """Yield CLUE's pairs, test file first, and a failure for each row that cannot be used.

    An id is `train-<row number>` or `test-<row number>`.

    Raises:
        BuildError: a file has no header, or one without the columns needed; `numbers` is not JSON of its form.
        NotFoundError: there is no such file.
    """
    numbers = read_mapping(source.numbers, int) if source.numbers else {}
    for part, path in (("test", source.test), ("train", source.train)):
        if path:
            image_of = partial(_image, part=part, source=source, numbers=numbers)
            columns = ("caption", "url", "index")
            yield from read_pairs(path, "clue", part, relations=RELATIONS, columns=columns, image_of=image_of)


def _image(row: Row, *, part: str, source: ClueSource, numbers: Mapping[str, int]) -> tuple[str, Split]:
    url = row["url"]
    if not url:
        raise FieldError(Reason.MISSING_FIELD, "expected the URL of an image, found it empty")
    if not url.startswith(WEB):
        raise FieldError(Reason.BROKEN_RECORD, f"expected an http or https URL, found {url[:80]!r}")
    uri = source.image_pattern.replace("{number}", str(numbers[url])) if url in numbers else url
    is_val = share_of(url, seed=source.seed) < source.val_share
    return uri, Split.TEST if part == "test" else Split.VAL if is_val else Split.TRAIN
