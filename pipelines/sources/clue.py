"""CLUE: captions and images of Conceptual Captions, and what people saw between them (Alikhani 2022; SPEC 2).

    conceptual_{train,test}_dis.csv   ,index,caption,url,Visible,Subjective,Action,Story,Meta,Irrelevant,Other,When,...
    img2idxmap.json                   {url: number}; the authors' copy of an image is `<number>.jpg`

Labels are 0 or 1. The published split is kept although 610 of the 1,512 test rows share their image with training
rows: the build reports such leaks, and with `splits.on_leak=drop splits.leak_kinds=images-exact` drops those training
rows (`pipelines.splits.leaks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.coherence import Format, Pair, read_pairs, text_of
from pipelines.sources.csv_rows import Row, read_table
from pipelines.sources.fields import FieldError
from pipelines.sources.json_streams import is_index, read_mapping
from pipelines.sources.labelled_settings import ClueSource
from pipelines.sources.openings import input_file
from pipelines.splits.assign import place_of
from schemas.configs import require
from schemas.documents import Split
from schemas.failures import Failure, Reason

DATASET = "clue"
RELATIONS: Mapping[str, tuple[str, ...]] = {
    name.lower(): (name,) for name in ("Visible", "Subjective", "Action", "Story", "Meta", "Irrelevant")
}


def read_clue(source: ClueSource) -> Iterator[CandidateDocument | Failure]:
    """Yield CLUE's pairs, test file first, and a failure for each row that cannot be used.

    An id is `train-<row number>` or `test-<row number>`.

    Raises:
        BuildError: a file has no header, or one without the columns needed; `numbers` is not JSON of its form.
        ConfigError: no training file is named.
        FileNotFoundError: there is no such file.
    """
    require(bool(source.train), field="source.train", value=source.train, rule="expected the path of a CLUE file")
    numbers = _numbers(source.numbers) if source.numbers else {}
    files = [("test", source.test), ("train", source.train)] if source.test else [("train", source.train)]
    for part, path in files:
        form = Format(DATASET, part, ("caption", "url"), RELATIONS)
        read_row = partial(_pair, part=part, source=source, numbers=numbers)
        yield from read_pairs(input_file(path), read_table(path), form, read_row)


def _pair(row: Row, *, part: str, source: ClueSource, numbers: Mapping[str, int]) -> Pair:
    url = row.cells["url"]
    if not url:
        raise FieldError(Reason.MISSING_FIELD, "expected the URL of an image, found it empty")
    if not url.startswith(("http://", "https://")):
        raise FieldError(Reason.BROKEN_RECORD, f"expected an http or https URL, found {url[:80]!r}")
    uri = source.image_pattern.replace("{number}", str(numbers[url])) if url in numbers else url
    split = Split.TEST
    if part == "train":
        split = Split.VAL if place_of(url, seed=source.seed) < source.val_share else Split.TRAIN
    return Pair(text_of(row.cells["caption"]), uri, split, row.cells.get("index", ""), url)


def _numbers(place: str) -> Mapping[str, int]:
    return read_mapping(place, is_index, expected="a number")
