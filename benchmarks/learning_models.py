"""Which models `benchmarks/learning.py` trains on which data, and which order the papers let one expect of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from benchmarks.learning_columns import NAMED, SENTENCES, VECTORS, VIEWS
from schemas.overrides import override
from training.config import TrainConfig
from training.recipes import recipe

POSTS, SCENES, PAIRS = "posts", "scenes", "pairs"
TWICE, FOUR_TIMES, SHUFFLED = f"{SCENES}, composed twice", f"{SCENES}, composed 4 times", f"{PAIRS}, relations shuffled"
COMPOSED = {TWICE: 2, FOUR_TIMES: 4}
CLOSED, CLOSED_FORM, CLASS_NAMES = "closed-form", "closed form", "class names"
CURVE = ("NoStruct", "DC", "AP")  # the models that are measured by number of training documents
DOCUMENT_DATA = (POSTS, SCENES, TWICE, FOUR_TIMES)
ABOUT = {
    POSTS: "Posts with picture albums, as the demo scrapes them from its recorded web: a caption belongs to the "
    "picture it was written under.",
    SCENES: "Documents in the manner of Hessel’s MSCOCO: three captioned pictures, three whose captions are withheld, "
    "and three captions of other pictures.",
    TWICE: "The same pictures and the same test documents; the training pictures are put into documents twice.",
    FOUR_TIMES: "The same again, the training pictures put into documents four times, in other company each time.",
    PAIRS: "One picture and its caption each; for training some are known to come from an album about animals, food, "
    "and so on (relations).",
    SHUFFLED: "The same pairs, each with the relations of another: what the second loss gives without what it knows.",
}
TRIPLETS = (
    "objective.name=triplet-hardest",
    "objective.margin=0.3",
    "training.negative_documents=31",
    "training.epochs=20",
)
ALL_COLUMNS = ("data.image_features=all", "data.sentence_features=all")
WHITENED = ("text.components=160", "image.components=200")  # as many as the closed form keeps
COHERENCE = ("objective.name=coherence-aware", "objective.relation_weight=0.01")


@dataclass(frozen=True)
class Model:
    """A line of the table: how it is trained, and on what."""

    title: str
    data: str
    recipe: str
    settings: tuple[str, ...] = ()

    @property
    def has_seeds(self) -> bool:
        return self.recipe != CLOSED

    def config(self, seed: int) -> TrainConfig:
        columns = (f"data.image_features={VECTORS}", f"data.sentence_features={SENTENCES}")
        settings = [*columns, *self.settings, f"training.seed={seed}", "training.device=cpu"]
        return override(recipe(self.recipe), settings)


def _of(data: str, kept_share: float) -> tuple[Model, ...]:
    both = (f"objective.kept_share={kept_share}", "objective.name=cross+intra+dropout", "objective.similarity=tk")
    return (
        Model("NoStruct", data, "tiny", ("objective.name=nostruct",)),
        Model("DC", data, "tiny", ("objective.similarity=dc",)),
        Model("TK", data, "tiny", ("objective.similarity=tk",)),
        Model("AP", data, "tiny", ("objective.similarity=ap",)),
        Model("C+I+D (TK)", data, "tiny", both),
    )


def _closed(data: str) -> tuple[Model, ...]:
    """Return the closed form and AP beside it, with and without steps at link time, and with other columns."""
    steps = "link.steps=csls,half-sinkhorn"
    columns = {"closed form, mirrored": VIEWS[0], "closed form, and middle layers": f"{VECTORS}+{VIEWS[1]}"}
    columns |= {"closed form, and colours": f"{VECTORS}+{VIEWS[2]}", CLOSED_FORM: VECTORS}
    return (
        Model("AP, steps", data, "tiny", ("objective.similarity=ap", steps)),
        Model("AP, all columns", data, "tiny", ("objective.similarity=ap", *ALL_COLUMNS, steps)),
        Model("AP, all columns, whitened", data, "tiny", ("objective.similarity=ap", *ALL_COLUMNS, *WHITENED, steps)),
        Model("closed form, no names, cosines", data, CLOSED, ("link.steps=",)),
        Model("closed form, cosines", data, CLOSED, (f"data.image_features={VECTORS}+{NAMED}", "link.steps=")),
        Model("closed form, no names", data, CLOSED),
        *(Model(title, data, CLOSED, (f"data.image_features={each}+{NAMED}",)) for title, each in columns.items()),
        Model("closed form, two encoders", data, CLOSED, (f"data.image_features={VECTORS}+{NAMED}", ALL_COLUMNS[1])),
        Model("closed form, all columns", data, CLOSED, ALL_COLUMNS),
    )


MODELS = (
    *_closed(POSTS),
    *_closed(SCENES),
    *_closed(FOUR_TIMES),
    *_of(POSTS, 0.6),
    Model("GRU, AP", POSTS, "tiny-hessel-2019"),
    Model("transformer, no concepts", POSTS, "tiny-li-2022", ("image.concepts=false",)),
    Model("transformer, concepts", POSTS, "tiny-li-2022"),
    *_of(SCENES, 0.8),
    *_of(FOUR_TIMES, 0.8),
    *(model for model in _of(TWICE, 0.8) if model.title in CURVE),
    Model("agnostic", PAIRS, "tiny", TRIPLETS),
    Model("coherence-aware", PAIRS, "tiny", (*TRIPLETS, *COHERENCE)),
    Model("coherence-aware, weight 0.1", PAIRS, "tiny", (*TRIPLETS, *COHERENCE[:1])),
    Model("coherence-aware", SHUFFLED, "tiny", (*TRIPLETS, *COHERENCE)),
)


@dataclass(frozen=True)
class Expected:
    """`better` is expected above `worse`, or, where `is_strict` is not set, at least as good."""

    better: tuple[str, str]
    worse: tuple[str, str]
    is_strict: bool = True


def _order(data: str, random: str) -> Iterator[Expected]:
    yield Expected((data, "NoStruct"), (random, "random"))
    for title in ("DC", "TK", "AP"):
        yield Expected((data, title), (data, "NoStruct"))
    yield Expected((data, "C+I+D (TK)"), (data, "TK"), is_strict=False)


def _above_steps(data: str) -> Iterator[Expected]:
    """Yield what is expected of the closed form."""
    yield Expected((data, CLOSED_FORM), (data, "AP"))
    yield Expected((data, CLOSED_FORM), (data, "AP, steps"))
    yield Expected((data, CLOSED_FORM), (data, "closed form, cosines"))
    yield Expected((data, CLOSED_FORM), (data, "closed form, no names"), is_strict=False)
    yield Expected((data, "closed form, two encoders"), (data, CLOSED_FORM), is_strict=False)
    yield Expected((data, "closed form, all columns"), (data, CLOSED_FORM), is_strict=False)
    yield Expected((data, "AP, all columns, whitened"), (data, "AP, steps"), is_strict=False)


EXPECTED = (
    *chain.from_iterable(map(_above_steps, (POSTS, SCENES, FOUR_TIMES))),
    *(Expected((data, CLOSED_FORM), (data, CLASS_NAMES)) for data in (POSTS, SCENES)),
    *_order(POSTS, POSTS),
    Expected((POSTS, "GRU, AP"), (POSTS, "random")),
    Expected((POSTS, "transformer, concepts"), (POSTS, "transformer, no concepts")),
    *_order(SCENES, SCENES),
    *_order(FOUR_TIMES, SCENES),
    Expected((PAIRS, "coherence-aware"), (PAIRS, "agnostic"), is_strict=False),
    Expected((PAIRS, "coherence-aware"), (SHUFFLED, "coherence-aware"), is_strict=False),
)
