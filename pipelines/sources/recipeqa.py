"""RecipeQA: the recipe that each question is about, as Hessel 2019 used it (suppl. 1; SPEC 2).

    {"data": [{"recipe_id": "plum-cake", "qid": "...", "task": "textual_cloze",
               "context": [{"id": 1, "title": "Dough", "body": "Mix ...", "images": ["plum-cake_1_0.jpg"]}, ...]}]}

A step's title comes with the visual questions and its images with the textual ones: the steps of all questions about a
recipe are merged by their ids, whatever the order, before the recipe is judged. A step is a sentence (title and body
joined by one space) linked to the step's images; a step without a word goes, and its images with it. The published
validation questions give the test split; validation recipes are drawn from the training ones by a hash of their id.
That a recipe has two images and two steps at least is for `DocumentsConfig` (`min_images`, `min_sentences`) to see to:
here it needs one of each. Files are streamed; the recipes of one of them are in memory.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pipelines.sources.candidate import CandidateDocument, sentence
from pipelines.sources.draws import share_of
from pipelines.sources.inputs import IMAGES, Input, needed, require_placeholder, require_share
from pipelines.sources.json_stream import read_lists
from pipelines.sources.records import (
    FieldError,
    checked,
    file_name,
    identifier,
    number,
    optional,
    outcomes_of,
    required,
)
from schemas.documents import Link, Provenance, Split
from schemas.failures import Failure, Reason, Stage

DATASET = "rqa"
LANGUAGE = "en"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeqaSource:
    """RecipeQA's questions, of which only the recipes are read.

    Attributes:
        train: path of `train.json`.
        val: path of `val.json`, whose recipes are the test split (H); empty: no test split.
        images: folder or tar that `images.zip` unpacks to.
        image_pattern: where an image is below `images`; `{name}` is its published name, `{split}` the published
            split of its question (`train` or `val`).
        val_share: of the training recipes, for validation (H: 1K beside 7K).
        seed: of that choice.
    """

    train: str = ""
    val: str = ""
    images: str = ""
    image_pattern: str = "images-qa/{split}/images-qa/{name}"
    val_share: float = 0.125
    seed: int = 0

    def __post_init__(self) -> None:
        require_placeholder(self.image_pattern, "{name}")
        require_share("val_share", self.val_share)

    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        return needed("train", "train.json"), Input("val", published=("val.json",)), IMAGES


@dataclass(slots=True)
class _Step:
    """What all questions about a recipe say of one of its steps."""

    title: str = ""
    body: str = ""
    images: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        return sentence(html.unescape(f"{self.title} {self.body}")).text


@dataclass(slots=True)
class _Recipe:
    """The steps of a recipe by id, and what is wrong with it, each once."""

    steps: dict[int, _Step] = field(default_factory=dict)
    failures: dict[Failure, None] = field(default_factory=dict)


def read(source: RecipeqaSource) -> Iterator[CandidateDocument | Failure]:
    """Yield each recipe once, test recipes first, and a failure for what cannot be used.

    A training recipe that is a test recipe too is left out (DUPLICATE_RECORD, once).

    Raises:
        BuildError: a file has no questions.
        NotFoundError: there is no such file.
    """
    test_ids: set[str] = set()
    for published, path in (("val", source.val), ("train", source.train)):
        recipes: dict[str, _Recipe] = {}
        if path:
            yield from _read_questions(path, recipes)
        judge = partial(_outcomes, published=published, source=source, test_ids=frozenset(test_ids))
        yield from outcomes_of(recipes.items(), judge)
        test_ids.update(recipes)


def _read_questions(path: str, recipes: dict[str, _Recipe]) -> Iterator[Failure]:
    """Add the steps of every question to its recipe; yield a failure for each question that cannot be used."""

    def add(listed: tuple[str, Any], recipe_id: str) -> Sequence[Failure]:
        steps = list(enumerate(required(listed[1], "context", list)))
        steps = [(index, checked(step, dict, "a step")) for index, step in steps]
        merged = [(number(step, "id") if step.get("id") is not None else index, _step(step)) for index, step in steps]
        recipe = recipes.setdefault(recipe_id, _Recipe())
        for step_id, (step, names) in merged:
            known = recipe.steps.setdefault(step_id, _Step())
            known.title, known.body = (
                max(known.title, step.title, key=_longest),
                max(known.body, step.body, key=_longest),
            )
            for name in names:
                try:
                    known.images.add(file_name(name, f"step {step_id}"))
                except FieldError as problem:
                    recipe.failures[problem.failure(recipe_id)] = None
        return ()

    yield from outcomes_of(read_lists(path, "data", needed=("data",)), add, _recipe_id)


def _recipe_id(listed: tuple[str, object]) -> str:
    return identifier(checked(listed[1], dict, "a question"), "recipe_id")


def _step(step: Mapping[str, Any]) -> tuple[_Step, list[object]]:
    title, body = (optional(step, name, "").strip() for name in ("title", "body"))
    return _Step(title, body), optional(step, "images", [])


def _longest(text: str) -> tuple[int, str]:
    return len(text), text


def _outcomes(
    recipe: _Recipe, recipe_id: str, published: str, source: RecipeqaSource, test_ids: frozenset[str]
) -> Iterator[CandidateDocument | Failure]:
    """Yield a recipe's document, or why there is none, then the failures of its parts."""
    if recipe_id in test_ids:
        raise FieldError(Reason.DUPLICATE_RECORD, "expected a recipe of one split, found it among the test recipes too")
    steps = [step for _, step in sorted(recipe.steps.items()) if step.text]
    shown = [sorted(step.images, key=_longest) for step in steps]
    positions = {name: index for index, name in enumerate(dict.fromkeys(name for names in shown for name in names))}
    links = [Link(index, positions[name]) for index, names in enumerate(shown) for name in names]
    pattern = source.image_pattern.replace("{split}", published)
    is_val = share_of(recipe_id, seed=source.seed) < source.val_share
    if not steps:
        yield Failure(Stage.SOURCES, recipe_id, Reason.TOO_FEW_SENTENCES, "expected a step with words, found none")
    elif not positions:
        yield Failure(
            Stage.SOURCES, recipe_id, Reason.TOO_FEW_IMAGES, "expected an image of a step with words, found none"
        )
    else:
        yield CandidateDocument(
            id=recipe_id,
            dataset=DATASET,
            sentences=tuple(sentence(step.text) for step in steps),
            image_uris=tuple(pattern.replace("{name}", name) for name in positions),
            links=tuple(links),
            provenance=Provenance(DATASET, recipe_id),
            language=LANGUAGE,
            split=Split.TEST if published == "val" else Split.VAL if is_val else Split.TRAIN,
        )
    for step_id, step in sorted(recipe.steps.items()):
        if not step.text:
            yield Failure(Stage.SOURCES, recipe_id, Reason.EMPTY_SENTENCE, f"step {step_id} has neither title nor body")
    yield from recipe.failures
