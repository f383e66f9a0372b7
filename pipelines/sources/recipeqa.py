"""RecipeQA: the recipe that each question is about, as Hessel 2019 used it (suppl. 1; SPEC 2).

    {"data": [{"recipe_id": "plum-cake", "qid": "...", "task": "textual_cloze",
               "context": [{"id": 1, "title": "Dough", "body": "Mix ...", "images": ["plum-cake_1_0.jpg"]}, ...]}]}

A step is a sentence (title and body joined by one space) linked to the step's images; a step without a word goes, and
its images with it. The published validation questions give the test split; validation recipes are drawn from the
training ones by a hash of their id. That a recipe has two images and two steps at least is for `DocumentsConfig`
(`min_images`, `min_sentences`) to see to: here it needs one of each.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.fields import FieldError, checked, identifier, optional, required
from pipelines.sources.json_streams import read_lists
from pipelines.sources.labelled_settings import RecipeqaSource
from pipelines.sources.openings import BrokenInputError, Place, input_file
from pipelines.splits.assign import place_of
from schemas.configs import require
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.errors import BuildError
from schemas.failures import Failure, Reason, Stage

DATASET = "rqa"
LANGUAGE = "en"


def read_recipeqa(source: RecipeqaSource) -> Iterator[CandidateDocument | Failure]:
    """Yield each recipe once, test recipes first, and a failure for what cannot be used.

    The first question of a recipe that can be read gives its document; other questions of the same file are passed
    over. A training recipe that is a test recipe too is left out (DUPLICATE_RECORD, once).

    Raises:
        BuildError: a file is no JSON object, or has no questions.
        ConfigError: no training file is named.
        FileNotFoundError: there is no such file.
    """
    require(bool(source.train), field="source.train", value=source.train, rule="expected the path of train.json")
    test = _Questions("val", source)
    if source.val:
        yield from test.read(source.val)
    yield from _Questions("train", source, test_ids=test.done).read(source.train)


@dataclass(slots=True)
class _Questions:
    """The questions of a published split.

    Attributes:
        test_ids: recipes that this split must not have.
        done: recipes that need no further question.
    """

    published: str
    source: RecipeqaSource
    test_ids: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)

    def read(self, place: Place) -> Iterator[CandidateDocument | Failure]:
        file = input_file(place)
        number = 0
        try:
            for name, item in read_lists(file):
                if name == "data":
                    number += 1
                    yield from self._read_question(item, f"{file.name}#{number}")
        except BrokenInputError as problem:
            yield problem.failure(after=f"{number} questions")
            return
        if number == 0:
            raise BuildError(f"{file}: expected questions in a list 'data', found none")

    def _read_question(self, item: object, record_id: str) -> Iterator[CandidateDocument | Failure]:
        try:
            question: dict[str, Any] = checked(item, dict, "a question")
            record_id = identifier(question, "recipe_id")
            if record_id in self.done:
                return
            recipe = _recipe(record_id, required(question, "context", list))
        except FieldError as problem:
            yield problem.failure(record_id)
            return
        self.done.add(record_id)
        if record_id in self.test_ids:
            message = "expected a recipe of one split, found it among the test recipes too"
            yield Failure(Stage.SOURCES, record_id, Reason.DUPLICATE_RECORD, message)
            return
        yield recipe.problem() or recipe.draft(self._split(record_id), self.published, self.source.image_pattern)
        yield from recipe.failures

    def _split(self, recipe_id: str) -> Split:
        if self.published == "val":
            return Split.TEST
        place = place_of(recipe_id, seed=self.source.seed)
        return Split.VAL if place < self.source.val_share else Split.TRAIN


@dataclass(slots=True)
class _Recipe:
    """The steps of a recipe that have words, the images they have, and what was left out."""

    id: str
    texts: list[str] = field(default_factory=list)
    images: dict[str, int] = field(default_factory=dict)  # published name -> position
    links: list[Link] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def add_step(self, index: int, text: str, names: list[Any]) -> None:
        if not text:
            self.fail(Reason.EMPTY_SENTENCE, f"step {index} has neither title nor body")
            return
        self.texts.append(text)
        for name in names:
            if (problem := name_problem(name)) is not None:
                self.fail(problem[0], f"step {index}: {problem[1]}")
                continue
            image = self.images.setdefault(name.strip(), len(self.images))
            link = Link(len(self.texts) - 1, image)
            if link not in self.links:
                self.links.append(link)

    def fail(self, reason: Reason, message: str) -> None:
        self.failures.append(Failure(Stage.SOURCES, self.id, reason, message))

    def problem(self) -> Failure | None:
        if not self.texts:
            message = "expected a step with words, found none"
            return Failure(Stage.SOURCES, self.id, Reason.TOO_FEW_SENTENCES, message)
        if not self.images:
            message = "expected an image of a step with words, found none"
            return Failure(Stage.SOURCES, self.id, Reason.TOO_FEW_IMAGES, message)
        return None

    def draft(self, split: Split, published: str, pattern: str) -> CandidateDocument:
        return CandidateDocument(
            id=self.id,
            dataset=DATASET,
            sentences=tuple(Sentence(text) for text in self.texts),
            image_uris=tuple(pattern.replace("{split}", published).replace("{name}", name) for name in self.images),
            links=tuple(self.links),
            provenance=Provenance(DATASET, self.id),
            language=LANGUAGE,
            split=split,
        )


def _recipe(recipe_id: str, steps: list[Any]) -> _Recipe:
    recipe = _Recipe(recipe_id)
    for index, item in enumerate(steps):
        step: dict[str, Any] = checked(item, dict, "a step")
        parts = (html.unescape(optional(step, name, "")).strip() for name in ("title", "body"))
        recipe.add_step(index, " ".join(part for part in parts if part), optional(step, "images", []))
    return recipe


def name_problem(name: object) -> tuple[Reason, str] | None:
    """Return why a published image name cannot be looked for below a folder, or None where it can."""
    if name is None or (isinstance(name, str) and not name.strip()):
        return Reason.MISSING_FIELD, "expected the name of an image, found it empty"
    if not isinstance(name, str):
        return Reason.BROKEN_RECORD, f"expected the name of an image, found {str(name)[:80]!r}"
    leads_out = name.strip().startswith("/") or ".." in name.replace("\\", "/").split("/")
    if leads_out or any(character < " " for character in name.strip()):
        return Reason.BROKEN_RECORD, f"expected the name of an image below the images, found {name[:80]!r}"
    return None
