"""CITE and CLUE: pairs of a text and an image whose relations people judged (Alikhani 2022; SPEC 2).

    CITE     |Index|q10_resp|q1_resp|...|q9_resp|qimg|stim_id|stim_txt|complement     True, False or blank
    CITE++   the same with commas, in a training and a test file
    CLUE     ,index,caption,url,Visible,Subjective,Action,Story,Meta,Irrelevant,Other,When,...     1, 0 or blank

A row of a CSV file is a document of one sentence and one image, linked, the link carrying each relation as true, false
or unknown. A row that is not as the header says is a failure row of its own (`pipelines.sources.rows`).

CITE's texts are steps of RecipeQA's recipes; of its ten questions, `q2` to `q8` are relations. It has no published
split: where neither a file nor a column `split` names one, test and validation rows are drawn by a hash of the image's
name, so that the rows of one pair, which was judged up to four times, stay together.

CLUE's texts and images are those of Conceptual Captions. The published split is kept although 610 of the 1,512 test
rows share their image with training rows: the build reports such leaks, and with `splits.on_leak=drop
splits.leak_kinds=images-exact` drops those training rows (`pipelines.splits.shared`).
"""

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from pipelines.embedded import on_web
from pipelines.recipe import BuildConfig, as_published
from pipelines.sources.draws import share_of
from pipelines.sources.fields import UNKNOWN, split_named
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    file_name,
    outcomes_of,
    sentence,
    web_url,
)
from pipelines.sources.rows import Cells, read_mapping, read_table
from pipelines.sources.source import IMAGES, Input, Outcomes, Source, input_path
from schemas.configs import require
from schemas.documents import Link, Provenance, Split
from schemas.failures import Failure, Reason
from schemas.messages import BuildError

VAL_SHARE = 0.1  # of the training rows (A)
CITE_TEST_SHARE = 0.2  # of the rows of a file without a split (A: 860 of 4,299)
# Relation -> the columns that may hold it, the likeliest last (A table 1).
CITE_RELATIONS: Mapping[str, tuple[str, ...]] = {
    name: (f"q{number}", f"q{number}_resp")
    for number, name in enumerate(
        (
            "expansion",
            "image_needed",
            "elaboration_text",
            "elaboration_image_tool",
            "temporal_image_before",
            "temporal_image_after",
            "temporal_image_during",
        ),
        start=2,
    )
}
CLUE_RELATIONS: Mapping[str, tuple[str, ...]] = {
    name.lower(): (name,) for name in ("Visible", "Subjective", "Action", "Story", "Meta", "Irrelevant")
}
_TRUE = frozenset({"true", "t", "yes", "y", "1", "1.0"})
_FALSE = frozenset({"false", "f", "no", "n", "0", "0.0"})
_SPELLED = re.compile(r"\\(?:[tnr]|xa0|u(00[01a][0-9a-f]))")
_ROW_NUMBERS = ("", "Unnamed: 0")  # what pandas names the column it writes its row numbers to


@dataclass(frozen=True, slots=True, kw_only=True)
class CiteSource(Source):
    """CITE's one file, or the two files of CITE++.

    Attributes:
        train: path of the training rows, or of the only file.
        test: path of the test rows; empty where there is only one file.
        images: folder or tar of RecipeQA's images, as `images.zip` unpacks to it. The rows are of its training images.
    """

    inputs: ClassVar = (
        Input("train", published=("data.csv", "train.csv"), is_needed=True),
        Input("test", published=("test.csv",)),
        IMAGES,
    )
    train: str = input_path("")
    test: str = input_path("")
    images: str = input_path("")

    def read(self) -> Outcomes:
        """Yield CITE's or CITE++'s pairs, test file first, and a failure for each row that cannot be used.

        An id is `<file>-<row number>`, the file being `train`, `test`, or `all` where there is only one.

        Raises:
            BuildError: a file has no header, or one without the columns needed.
            NotFoundError: there is no such file.
        """
        columns = ("stim_txt", "qimg", "stim_id")
        for part, path in (("test", self.test), ("train" if self.test else "all", self.train)):
            image_of = partial(self._image, part)
            yield from read_pairs(path, "cite", part, relations=CITE_RELATIONS, columns=columns, image_of=image_of)

    def _image(self, part: str, row: Cells) -> tuple[str, Split]:
        name = file_name(row["qimg"], "qimg")
        test_share = {"test": 1.0, "train": 0.0, "all": CITE_TEST_SHARE}[part]
        drawn = share_of(name, seed=0)
        is_val = drawn < test_share + VAL_SHARE * (1 - test_share)
        split = Split.TEST if drawn < test_share else Split.VAL if is_val else Split.TRAIN
        return f"images-qa/train/images-qa/{name}", split_named(row.get("split"), "split") or split


@dataclass(frozen=True, slots=True, kw_only=True)
class ClueSource(Source):
    """CLUE's two files, and the images that its authors fetched, if there are any.

    Attributes:
        train: path of `conceptual_train_dis.csv`.
        test: path of `conceptual_test_dis.csv`; empty: no test split.
        numbers: path of `img2idxmap.json` (`{url: number}`, in memory): the authors' copy of an image is
            `<number>.jpg`; empty: images are fetched from their URLs.
        images: folder or tar of the numbered images; needed with `numbers`.
    """

    inputs: ClassVar = (
        Input("train", published=("conceptual_train_dis.csv",), is_needed=True),
        Input("test", published=("conceptual_test_dis.csv",)),
        Input("numbers", published=("img2idxmap.json",)),
        IMAGES,
    )
    train: str = input_path("")
    test: str = input_path("")
    numbers: str = input_path("")
    images: str = input_path("")

    def __post_init__(self) -> None:
        Source.__post_init__(self)
        has_root = bool(self.images) or not self.numbers
        require(has_root, field="source.images", value=self.images, rule="must be given with source.numbers")

    def read(self) -> Outcomes:
        """Yield CLUE's pairs, test file first, and a failure for each row that cannot be used.

        An id is `train-<row number>` or `test-<row number>`.

        Raises:
            BuildError: a file has no header, or one without the columns needed; `numbers` is not JSON of its form.
            NotFoundError: there is no such file.
        """
        numbers = read_mapping(self.numbers, int) if self.numbers else {}
        columns = ("caption", "url", "index")
        for part, path in (("test", self.test), ("train", self.train)):
            image_of = partial(self._image, part, numbers)
            yield from read_pairs(path, "clue", part, relations=CLUE_RELATIONS, columns=columns, image_of=image_of)

    def _image(self, part: str, numbers: Mapping[str, int], row: Cells) -> tuple[str, Split]:
        if not row["url"]:
            raise FieldError(Reason.MISSING_FIELD, "expected the URL of an image, found it empty")
        url = web_url(row["url"], "url")
        is_val = share_of(url, seed=0) < VAL_SHARE
        split = Split.TEST if part == "test" else Split.VAL if is_val else Split.TRAIN
        return f"{numbers[url]}.jpg" if url in numbers else url, split


def read_pairs(
    path: str,
    dataset: str,
    part: str,
    *,
    relations: Mapping[str, tuple[str, ...]],
    columns: tuple[str, str, str],
    image_of: Callable[[Cells], tuple[str, Split]],
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of each row of a file, or why there is none; nothing where the path is empty.

    Its id is `<part>-<row number>`, the number being pandas' where the file has it, else `line` and the line's.

    Args:
        path: of the file.
        dataset: name of the data set.
        part: of the data set, that the file is.
        relations: the columns that may hold each, the likeliest last.
        columns: of the text, of the image, and of the record's own id, which may be missing.
        image_of: returns a row's image address and split, or raises FieldError.

    Raises:
        BuildError: the text's column, the image's, or those of all relations are missing.
    """
    if not path:
        return
    text_column, image_column, id_column = columns
    header, rows = read_table(path)
    names = {relation: next((name for name in among if name in header), None) for relation, among in relations.items()}
    missing = [name for name in (image_column, text_column) if name not in header]
    missing += [] if any(names.values()) else [among[-1] for among in relations.values()]
    if missing:
        raise BuildError(f"{path}: expected the columns {', '.join(missing)}; found {', '.join(header)[:200]}")

    def document(row: Cells, document_id: str) -> Iterator[CandidateDocument]:
        uri, split = image_of(row)
        # A file spells control characters and white space with a backslash.
        spelled = _SPELLED.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", row[text_column])
        text = sentence(html.unescape(spelled))
        if not text.text:
            raise FieldError(Reason.EMPTY_SENTENCE, "expected a text, found it blank")
        labels = tuple((relation, _label(row[name], name) if name else None) for relation, name in names.items())
        url = row[image_column] if on_web(row[image_column]) else None
        yield CandidateDocument(
            id=document_id,
            dataset=dataset,
            sentences=(text,),
            images=(CandidateImage(uri),),
            links=(Link(0, 0, labels),),
            provenance=Provenance(dataset, row.get(id_column) or document_id, url),
            language="en",
            split=split,
        )

    yield from outcomes_of(((_id(where, row, part), row) for where, row in rows), document)


def _id(where: str, row: Cells | FieldError, part: str) -> str:
    if isinstance(row, FieldError):
        return where
    number = next((row[name] for name in _ROW_NUMBERS if row.get(name)), f"line{where.rpartition(':')[2]}")
    return f"{part}-{number}"


def _label(cell: str, name: str) -> bool | None:
    """Return what a cell says; a blank is unknown (A's code took it for false)."""
    value = cell.lower()
    if value not in _TRUE | _FALSE | UNKNOWN:
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected true, false or nothing, found {cell[:40]!r}")
    return None if value in UNKNOWN else value in _TRUE


def cite() -> BuildConfig:
    """CITE and CITE++: one sentence, one image, seven relations between them."""
    return as_published("cite", CiteSource())


def clue() -> BuildConfig:
    """CLUE: one caption, one image, six relations between them."""
    return as_published("clue", ClueSource())


RECIPES = {"cite": cite, "clue": clue}
