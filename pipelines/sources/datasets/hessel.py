"""Two data sets of Hessel 2019: RecipeQA, and the files that were released.

RecipeQA: the recipe that each question is about, as Hessel 2019 used it (suppl. 1; SPEC 2).

    {"data": [{"recipe_id": "plum-cake", "qid": "...", "task": "textual_cloze",
               "context": [{"id": 1, "title": "Dough", "body": "Mix ...", "images": ["plum-cake_1_0.jpg"]}, ...]}]}

A step's title comes with the visual questions and its images with the textual ones: the steps of all questions about a
recipe are merged by their ids, whatever the order, before the recipe is judged. A step is a sentence (title and body
joined by one space) linked to the step's images, which stand beside it (beside the first, where several steps show
one); a step without a word goes, and its images with it. The published validation questions give the test split;
validation recipes are drawn from the training ones by a hash of their id.
That a recipe has two images and two steps at least is for `DocumentsConfig` (`min_images`, `min_sentences`) to see to:
here it needs one of each.

The files Hessel 2019 released: documents whose images are rows of a feature array.

    docs.json     {"train": [[images, sentences, meta], ...], "val": ..., "test": ...}
                  image = [id, sentence index], sentence = [text, image index]; -1: no partner; null: unlabelled corpus
    id2row.json   {image id: row of features.npy}

The links of a document are the union of what both of its sides say. The feature array itself is not read here.
`docs.json` is streamed; `id2row.json` is in memory.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import msgspec

from pipelines.recipe import EVERY_DOCUMENT, BuildConfig, without_limits
from pipelines.settings import NO_LIMIT, DocumentsConfig, FeaturesConfig, SplitsConfig
from pipelines.sources.draws import share_of
from pipelines.sources.fields import Number, Object, identifier, typed
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    file_name,
    linked,
    outcomes_of,
    rejected,
    sentence,
)
from pipelines.sources.rows import read_lists, read_mapping
from pipelines.sources.source import IMAGES, Input, Outcomes, Source, input_path
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.failures import Failure, Reason

DATASET = "rqa"
VAL_SHARE = 0.125  # of the training recipes (H: 1K beside 7K)
SOURCE = "multi-retrieval"
EXTRACTOR = "released"  # the name of the vectors' column
_NO_PARTNER = (-1, None)
_Pairs = tuple[list[tuple[Any, int | None]], list[tuple[str, int | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeqaSource(Source):
    """RecipeQA's questions, of which only the recipes are read.

    Attributes:
        train: path of `train.json`.
        val: path of `val.json`, whose recipes are the test split (H); empty: no test split.
        images: folder or tar that `images.zip` unpacks to: `images-qa/<train or val>/images-qa/<name>`.
    """

    inputs: ClassVar = (
        Input("train", published=("train.json",), is_needed=True),
        Input("val", published=("val.json",)),
        IMAGES,
    )
    train: str = input_path("")
    val: str = input_path("")
    images: str = input_path("")

    def read(self) -> Outcomes:
        """Yield each recipe once, test recipes first, and a failure for what cannot be used.

        A training recipe that is a test recipe too is left out (DUPLICATE_RECORD, once). The published ids are names
        of pages; where one is a number, the recipe is the same if it has a step or an image in common, and else comes
        as `train-<id>`.

        Raises:
            BuildError: a file has no questions.
            NotFoundError: there is no such file.
        """
        tests: dict[str, _Recipe] = {}
        for published, path in (("val", self.val), ("train", self.train)):
            recipes: dict[str, _Recipe] = {}
            yield from _read_questions(path, recipes) if path else ()
            yield from outcomes_of(recipes.items(), partial(self._outcomes, published, tests))
            tests = recipes

    def _outcomes(
        self, published: str, tests: Mapping[str, _Recipe], recipe: _Recipe, recipe_id: str
    ) -> Iterator[CandidateDocument | Failure]:
        """Yield a recipe's document, or why there is none, then the failures of its parts."""
        if recipe_id in tests:
            if not recipe_id.isdecimal() or recipe.content & tests[recipe_id].content:
                message = "expected a recipe of one split, found it among the test recipes too"
                raise FieldError(Reason.DUPLICATE_RECORD, message)
            recipe_id = f"train-{recipe_id}"
        steps = [step for _, step in sorted(recipe.steps.items()) if step.sentence.text]
        shown = [sorted(step.images, key=_longest) for step in steps]
        steps_of: dict[str, int] = {}  # of each image, the first step that shows it
        for index, names in enumerate(shown):
            for name in names:
                steps_of.setdefault(name, index)
        positions = {name: position for position, name in enumerate(steps_of)}
        is_val = share_of(recipe_id, seed=0) < VAL_SHARE
        if not steps:
            yield rejected(recipe_id, Reason.TOO_FEW_SENTENCES, "expected a step with words, found none")
        elif not positions:
            yield rejected(recipe_id, Reason.TOO_FEW_IMAGES, "expected an image of a step with words, found none")
        else:
            yield CandidateDocument(
                id=recipe_id,
                dataset=DATASET,
                sentences=tuple(step.sentence for step in steps),
                images=tuple(
                    CandidateImage(f"images-qa/{published}/images-qa/{name}", after=step)
                    for name, step in steps_of.items()
                ),
                links=tuple(Link(index, positions[name]) for index, names in enumerate(shown) for name in names),
                provenance=Provenance(DATASET, recipe_id),
                language="en",
                split=Split.TEST if published == "val" else Split.VAL if is_val else Split.TRAIN,
            )
        for step_id, step in sorted(recipe.steps.items()):
            if not step.sentence.text:
                yield rejected(recipe_id, Reason.EMPTY_SENTENCE, f"step {step_id} has neither title nor body")
        yield from recipe.failures


class _Published(msgspec.Struct):
    """A step, as a question has it."""

    id: Number | None = None
    title: str = ""
    body: str = ""
    images: list[Any] = []


@dataclass(slots=True)
class _Step:
    """What all questions about a recipe say of one of its steps."""

    title: str = ""
    body: str = ""
    images: set[str] = field(default_factory=set)

    @property
    def sentence(self) -> Sentence:
        return sentence(html.unescape(f"{self.title} {self.body}"))


@dataclass(slots=True)
class _Recipe:
    """The steps of a recipe by id, and what is wrong with it, each once."""

    steps: dict[int, _Step] = field(default_factory=dict)
    failures: dict[Failure, None] = field(default_factory=dict)

    @property
    def content(self) -> set[str]:
        """The names of its images and the bodies of its steps."""
        bodies = {step.body for step in self.steps.values() if step.body}
        return bodies.union(*(step.images for step in self.steps.values()))


def _read_questions(path: str, recipes: dict[str, _Recipe]) -> Iterator[Failure]:
    """Add the steps of every question to its recipe; yield a failure for each question that cannot be used."""

    def add(listed: tuple[str, Any], recipe_id: str) -> Sequence[Failure]:
        context = typed(listed[1].get("context"), list[_Published], "$.context", is_lax=True)
        recipe = recipes.setdefault(recipe_id, _Recipe())
        for index, found in enumerate(context):
            step_id = index if found.id is None else found.id
            step = recipe.steps.setdefault(step_id, _Step())
            step.title = max(step.title, found.title.strip(), key=_longest)
            step.body = max(step.body, found.body.strip(), key=_longest)
            for name in found.images:
                try:
                    step.images.add(file_name(typed(name or "", str, f"step {step_id}"), f"step {step_id}"))
                except FieldError as problem:
                    recipe.failures[problem.failure(recipe_id)] = None
        return ()

    return outcomes_of(
        read_lists(path, "data", needed=("data",)),
        add,
        lambda listed: identifier(typed(listed[1], Object), "recipe_id"),
    )


def _longest(text: str) -> tuple[int, str]:
    return len(text), text


def rqa() -> BuildConfig:
    """RecipeQA's recipes: a sentence a step, linked to the step's images."""
    thresholds = DocumentsConfig(min_sentences=2, min_images=2, min_long_sentences=0, max_images=NO_LIMIT)
    return without_limits("rqa", RecipeqaSource(), thresholds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiRetrievalSource(Source):
    """The files Hessel 2019 released: documents, and one feature row per image (STACK, data formats).

    Attributes:
        documents: path of `docs.json`.
        id2row: path of `id2row.json`.
        features: path of `features.npy`, rows x dimensions.
    """

    inputs: ClassVar = (
        Input("documents", published=("docs.json",), is_needed=True),
        Input("id2row", published=("id2row.json",), is_needed=True),
        Input("features", "array", is_needed=True),
    )
    documents: str = input_path("")
    id2row: str = input_path("")
    features: str = input_path("")

    @property
    def given_features(self) -> tuple[str, str]:
        """Return the released array."""
        return EXTRACTOR, self.features

    def read(self) -> Outcomes:
        """Yield the released documents, split by split in file order, and a failure for each thing that cannot be used.

        A document is kept without the images that have no row (FEATURE_MISSING) and the links that lead nowhere
        (BAD_LINK). Its id is the one in its meta data unless one before has it, else `<split>-<index>`.

        Raises:
            BuildError: `id2row` is not JSON of the published form.
            NotFoundError: there is no such file.
        """
        rows = read_mapping(self.id2row, int)
        counts: Counter[str] = Counter()
        seen: set[str] = set()

        def identify(listed: tuple[str, object]) -> str:
            split, record = listed
            own_id = _own_id(record)
            record_id = own_id if own_id and own_id not in seen else f"{split}-{counts[split]}"
            seen.add(record_id)
            counts[split] += 1
            return record_id

        yield from outcomes_of(read_lists(self.documents, *Split), partial(_released_document, rows), identify)


def _released_document(
    rows: Mapping[str, int], listed: tuple[str, object], record_id: str
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of a record, then the failures of its parts.

    Raises:
        FieldError: it is not `[images, sentences, meta]`.
    """
    split, item = listed
    images, texts = typed(item[:2] if isinstance(item, list) else item, _Pairs)
    image_ids = [str(image_id) for image_id, _ in images]
    sides = {(text, image) for image, (_, text) in enumerate(images) if text not in _NO_PARTNER}
    sides |= {(text, image) for text, (_, image) in enumerate(texts) if image not in _NO_PARTNER}
    links, lost = linked(sorted(sides), [True] * len(texts), [image_id in rows for image_id in image_ids])
    is_labelled = any(partner is not None for _, partner in (*images, *texts))
    yield CandidateDocument(
        id=record_id,
        dataset=SOURCE,
        sentences=tuple(sentence(text) for text, _ in texts),
        images=tuple(CandidateImage(f"row:{rows[image_id]}") for image_id in image_ids if image_id in rows),
        links=links if is_labelled else None,
        provenance=Provenance(SOURCE, record_id),
        split=Split(split),
    )
    for index, image_id in enumerate(image_ids):
        if image_id not in rows:
            expected = f"expected a row of image {image_id!r}, found none in id2row"
            yield rejected(record_id, Reason.FEATURE_MISSING, expected, image=index)
    for message in lost:
        yield rejected(record_id, Reason.BAD_LINK, message)


def _own_id(record: object) -> str | None:
    """Return the id in a record's meta data, which is an object with one, or the id itself."""
    meta = record[2] if isinstance(record, list) and len(record) > 2 else None
    try:
        return identifier(meta if isinstance(meta, dict) else {"id": meta})
    except FieldError:
        return None


def multi_retrieval() -> BuildConfig:
    """The files Hessel 2019 released: documents and feature rows, no pixels, splits as published."""
    config = without_limits("multi-retrieval", MultiRetrievalSource(), EVERY_DOCUMENT)
    return replace(config, features=FeaturesConfig(images=()), splits=SplitsConfig(val=0.0, test=0.0))


RECIPES = {"rqa": rqa, "multi-retrieval": multi_retrieval}
