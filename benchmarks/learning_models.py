"""Which models `benchmarks/learning.py` trains on which data, and which are compared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from benchmarks.learning_columns import MIDDLE, NAMED, SENTENCES, VECTORS
from pipelines.settings import STRONGEST
from schemas.overrides import override
from training.config import TrainConfig
from training.recipes import recipe

POSTS, SCENES, MANY, PAIRS = "posts", "scenes", "scenes, composed 4 times", "pairs"
SHUFFLED, TIMES = f"{PAIRS}, relations shuffled", 4
FEWER = 2  # splits of what takes long and decides little
CLOSED, CLOSED_FORM, TINY, NOSTRUCT = "closed-form", "closed form", "AP", "NoStruct"
BEST_IMAGES = "closed form, best images"  # features.images=best
DOCUMENT_DATA = (POSTS, SCENES, MANY)
ORDERS = {f"{SCENES}, {words} in order": share for words, share in (("all", 1.0), ("half", 0.5), ("none", 0.0))}
ABOUT = {
    POSTS: "the demo's posts; each caption belongs to the picture above it",
    SCENES: "like Hessel's MSCOCO documents: three captioned pictures, three pictures and three captions of others",
    MANY: "the same, but each training picture is in four documents",
    PAIRS: "a picture and its caption; some training pairs have a relation (an album about animals, food ...)",
    SHUFFLED: "the same, each with the relation of another pair",
}
TRIPLETS = (
    "objective.name=triplet-hardest",
    "objective.margin=0.3",
    "training.negative_documents=31",
    "training.epochs=20",
)
ALL_IMAGES, ALL_SENTENCES = "data.image_features=all", "data.sentence_features=all"
COHERENCE = ("objective.name=coherence-aware", "objective.relation_weight=0.01")
NAMES = f"data.image_features={VECTORS}+{NAMED}"
BEST = f"data.image_features={'+'.join(STRONGEST)}"


@dataclass(frozen=True)
class Model:
    """A line of a table: how it is trained, on what, and on how many splits at most."""

    title: str
    data: str
    recipe: str
    settings: tuple[str, ...] = ()
    splits: int = 5

    def config(self, run: int) -> TrainConfig:
        columns = (f"data.image_features={VECTORS}", f"data.sentence_features={SENTENCES}")
        return override(recipe(self.recipe), [*columns, *self.settings, f"training.seed={run}", "training.device=cpu"])


def _gradient(data: str, kept_share: float) -> tuple[Model, ...]:
    both = (f"objective.kept_share={kept_share}", "objective.name=cross+intra+dropout", "objective.similarity=tk")
    return (
        Model(NOSTRUCT, data, "tiny", ("objective.name=nostruct",)),
        Model(TINY, data, "tiny"),
        Model("AP, steps", data, "tiny", ("link.steps=csls,half-sinkhorn",)),
        Model("C+I+D (TK)", data, "tiny", both),
    )


def _more(data: str) -> tuple[Model, ...]:
    every = (ALL_IMAGES, ALL_SENTENCES, "link.steps=csls,class-names,half-sinkhorn")
    return (
        Model("TK", data, "tiny", ("objective.similarity=tk",), FEWER),
        Model("AP, all columns, steps", data, "tiny", every, FEWER),
    )


def _closed(data: str) -> tuple[Model, ...]:
    """Return the closed form with class names, and what changes when a column or a step is added or left out."""
    return (
        Model("closed form, no class names", data, CLOSED),
        Model("closed form, cosines", data, CLOSED, (NAMES, "link.steps=")),
        Model(CLOSED_FORM, data, CLOSED, (NAMES,)),
        Model("closed form, middle layers", data, CLOSED, (f"data.image_features={VECTORS}+{MIDDLE}+{NAMED}",)),
        Model(BEST_IMAGES, data, CLOSED, (BEST,)),
        Model("closed form, two encoders", data, CLOSED, (NAMES, ALL_SENTENCES)),
        Model(f"{BEST_IMAGES}, two encoders", data, CLOSED, (BEST, ALL_SENTENCES)),
    )


def _orders(data: str) -> tuple[Model, ...]:
    return tuple(
        Model(f"{CLOSED_FORM}, order {order}", data, CLOSED, (NAMES, f"link.order={order}"))
        for order in ("off", "auto")
    )


MODELS = (
    *_gradient(POSTS, 0.6),
    *_more(POSTS),
    Model("Hessel: GRU, AP", POSTS, "tiny-hessel-2019", (), FEWER),
    Model("Li: transformer, no concepts", POSTS, "tiny-li-2022", ("image.concepts=false",), FEWER),
    Model("Li: transformer, concepts", POSTS, "tiny-li-2022", (), FEWER),
    *_closed(POSTS),
    *_gradient(SCENES, 0.8),
    *_more(SCENES),
    *_closed(SCENES),
    *_gradient(MANY, 0.8),
    *_closed(MANY),
    *chain.from_iterable(map(_orders, ORDERS)),
    Model("agnostic", PAIRS, "tiny", TRIPLETS, FEWER),
    Model("coherence-aware", PAIRS, "tiny", (*TRIPLETS, *COHERENCE), FEWER),
    Model("Alikhani: BiLSTM, coherence", PAIRS, "tiny-alikhani-2022", (), FEWER),
    Model("Liu: subword attention", PAIRS, "tiny-liu-2020", ("data.roles=",), FEWER),
    Model("coherence-aware", SHUFFLED, "tiny", (*TRIPLETS, *COHERENCE), FEWER),
)


@dataclass(frozen=True)
class Compared:
    """Two models on the same documents; `worse` may be of other training data."""

    better: tuple[str, str]
    worse: tuple[str, str]


def _compared(data: str) -> tuple[Compared, ...]:
    """Return what is compared on a data set: each change of the closed form by itself, and the papers' orders."""
    base = {
        CLOSED_FORM: (TINY, "AP, steps", "class names", "closed form, cosines", "closed form, no class names"),
        "closed form, two encoders": (CLOSED_FORM,),
        BEST_IMAGES: (CLOSED_FORM,),
        TINY: (NOSTRUCT,),
        "AP, all columns, steps": ("AP, steps",),
        "C+I+D (TK)": ("TK",),
    }
    return tuple(Compared((data, title), (data, other)) for title, others in base.items() for other in others)


COMPARED = (
    *chain.from_iterable(map(_compared, DOCUMENT_DATA)),
    Compared((POSTS, "Li: transformer, concepts"), (POSTS, "Li: transformer, no concepts")),
    Compared((PAIRS, "coherence-aware"), (PAIRS, "agnostic")),
    Compared((PAIRS, "coherence-aware"), (SHUFFLED, "coherence-aware")),
)
