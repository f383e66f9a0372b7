"""Named complete training runs: each a function that returns a full configuration.

The four papers' recipes have each paper's settings; what a paper does not say is said here. Their `tiny-` variants keep
the architecture and the objective, and are made small enough to train in under two minutes on two cores.
"""

from collections.abc import Callable, Mapping

from schemas.configs import pick
from schemas.documents import Role
from schemas.overrides import override
from training.config import (
    ConstantSchedule,
    LoopConfig,
    Select,
    StepsSchedule,
    TrainConfig,
    image_tower,
    objective,
    text_tower,
)
from training.parts import PACKAGED, TRAINED, DataConfig, LinkSettings, LinkStep

DEFAULT_RECIPE = "hessel-2019"
PACKAGED_DIMENSIONS = 50


def tiny() -> TrainConfig:
    """Small data, two cores, half a minute: frozen sentence and CNN vectors, one affine map each, AP.

    Dropout, mean negatives, epochs and rate were chosen by the rank of a document's own images on the validation
    documents of the demo's posts and of scenes (`benchmarks/learning.py`), which takes no link. The last epoch is kept:
    over a few dozen validation documents neither loss nor rank is steady enough to choose an epoch by.
    """
    return TrainConfig(
        recipe="tiny",
        text=text_tower("sentence", dropout=0.5),
        image=image_tower("linear", dropout=0.5),
        objective=objective("cross", negatives="mean"),
        training=LoopConfig(epochs=24, learning_rate=5e-4, select=Select.LAST),
    )


def closed_form() -> TrainConfig:
    """Frozen sentence and CNN vectors, one affine map each, out of sums and an SVD: seconds, without a learning rate.

    Eight passes on each of two paths; the pass of the lowest rank of own images on the validation documents is kept.
    """
    return TrainConfig(
        recipe="closed-form",
        data=DataConfig(image_features="all", sentence_features="all"),
        dimensions=128,
        text=text_tower("sentence", dropout=0.0),
        image=image_tower("linear", dropout=0.0),
        objective=objective("closed-form"),
        training=LoopConfig(epochs=16, select=Select.RETRIEVAL),
        link=LinkSettings(steps=tuple(LinkStep), order="auto"),
    )


def joint_embeddings() -> TrainConfig:
    """Two columns of one joint model, such as CLIP's towers, compared as they are: a model without training.

    Name them: `--set data.image_features=clip-images --set data.sentence_features=clip-texts`.
    """
    settings = ("recipe=joint-embeddings", "dimensions=512", "objective.passes=0", "training.epochs=1")
    return override(closed_form(), [*settings, "link.order=off"])


def hessel_2019() -> TrainConfig:
    """Hessel, Lee, Mimno 2019: GRU and affine map, hinge on the hardest of b = 10 negatives, 50 epochs.

    The paper starts from word2vec of GoogleNews: `--set text.word_vectors=FILE`; without, words start at random, and
    the run says so.
    """
    return TrainConfig(recipe="hessel-2019")


def hessel_2019_fine_tuned() -> TrainConfig:
    """Hessel 2019, suppl. 2: the CNN trained end to end, at most ten sentences and ten images of a document a step.

    The paper's NASNet-Mobile (5 M parameters) is EfficientNet-lite0 (5 M) here: its weights come in a package. With
    NASNet's: `--set image.cnn=nasnet-mobile --set image.weights=FILE`.
    """
    return override(hessel_2019(), ["recipe=hessel-2019-fine-tuned", "image.name=fine-tuned", "training.max_rows=10"])


def li_2022() -> TrainConfig:
    """Li et al. 2022 on the Story sets: transformer, regions with concepts, C+I+D over TK.

    For mscoco: `--set training.learning_rate=1e-5 --set training.warmup_steps=3000 --set objective.kept_share=0.8`.
    The paper's regions are bottom-up-attention's of Visual Genome, 36 each (mscoco: adaptive). A build reads them from
    the published files: `features.images=NAME`, `features.weights=NAME=FILE`; of files without classes set
    `image.concepts=false`. TK is the average of the 2k pairs, as the paper has it. Word vectors are as of
    `hessel-2019`. The paper gives no number of epochs (50, Hessel's) and no dropout (0.1, Vaswani's).
    """
    return TrainConfig(
        recipe="li-2022",
        text=text_tower("transformer", dropout=0.1),
        image=image_tower("region-concept", dropout=0.1),
        objective=objective("cross+intra+dropout", similarity={"name": "tk", "combine": "mean"}, combine="mean"),
        training=LoopConfig(learning_rate=5e-5, warmup_steps=4000, warmup_from=1e-7),
    )


def alikhani_2022() -> TrainConfig:
    """Alikhani et al. 2022 on CITE++: BiLSTM with attention, ResNet-50, hardest triplets and coherence (CMCM).

    The agnostic model (CMCA): `--set objective.name=triplet-hardest`. -NoAttn: `--set text.pooling=last`. The epoch of
    the lowest median rank is kept. The attention is that of the authors' code. The paper gives no batch size (32) and
    no dropout (none).
    """
    return TrainConfig(
        recipe="alikhani-2022",
        text=text_tower(
            "bilstm-attention",
            pooling="tanh-attention",
            dropout=0.0,
            word_vectors=TRAINED,
            min_word_count=1,
            max_words=200,
        ),
        image=image_tower("linear-bn", dropout=0.0),
        objective=objective("triplet-hardest+coherence", margin=0.3),
        training=LoopConfig(
            epochs=20,
            negative_documents=31,
            learning_rate=1e-4,
            schedule=ConstantSchedule(),
            select=Select.MEDIAN_RANK,
        ),
    )


def alikhani_2022_clue() -> TrainConfig:
    """Alikhani et al. 2022 on CLUE: as on CITE++, with at most 40 words of a caption."""
    return override(alikhani_2022(), ["recipe=alikhani-2022-clue", "text.max_words=40"])


def alikhani_2022_fine_tuned() -> TrainConfig:
    """Alikhani et al. 2022, the authors' code: the ResNet-50 trained end to end, batch norm before its map."""
    image = ("image.name=fine-tuned", "image.cnn=resnet50", "image.batch_norm=true")
    return override(alikhani_2022(), ["recipe=alikhani-2022-fine-tuned", *image])


def liu_2020() -> TrainConfig:
    """Liu et al. 2020, single source: captions, subword attention, ResNet-152, all triplets.

    `--set text.word_vectors=wiki.de.bin` starts from fastText's vectors, as the paper does; without, they are
    trained from random ones. Other sources: `--set data.roles=headline`. The paper gives no batch size (128).
    """
    return TrainConfig(
        recipe="liu-2020",
        data=DataConfig(roles=(Role.CAPTION.value,)),
        text=text_tower("subword-attention", dropout=0.0, buckets=2_000_000),
        image=image_tower("linear", dropout=0.0),
        objective=objective("triplet-sum"),
        training=LoopConfig(
            epochs=30,
            negative_documents=127,
            learning_rate=1e-3,
            schedule=StepsSchedule(),
        ),
    )


def liu_2020_multi_source() -> TrainConfig:
    """Liu et al. 2020, 6.2: four sources fused by attention, started from single-source models, frozen one epoch.

    Name the models: `--set training.start_from=headline=MODEL,lead=MODEL,caption=MODEL,body=MODEL`; without, the
    run trains from scratch (line 2.7 of table 2). 10 epochs, the rate divided by 5 after five. Of a body 1,000 words
    are read (`text.body_words`; the paper names no limit). Other fusers of table 2: `--set text.fuser=max`, `add`,
    `neural-net`.
    """
    return override(
        liu_2020(),
        [
            "recipe=liu-2020-multi-source",
            "data.roles=",
            "text.name=multi-source",
            "training.epochs=10",
            "training.learning_rate=1e-4",
            "training.schedule.epochs=5",
            "training.frozen_epochs=1",
        ],
    )


def tiny_hessel_2019() -> TrainConfig:
    """Hessel 2019 in small: GRU of 128 numbers over the packaged GloVe vectors; mean negatives for five epochs.

    With the hardest negative from the start, as in the paper, a few hundred documents take long to teach anything: at
    first all documents are alike, each direction costs about the margin, 0.4 in all, and the hardest document of a
    batch is noise. The loss hangs at 0.4 for some ten epochs. Chosen on the validation split of the demo's posts, by
    the rank of a document's own images among 33 (AUC beside it), one seed: hardest negatives at rate 1e-3 in 10 epochs
    8.6 (65.2), with a warm-up of 60 steps 6.2 (66.8), with softmax 7.9 (67.3), mean negatives 4.6 (71.7). In 20 epochs
    at 3e-3: mean negatives 2.6 (76.2); hardest 2.1 (79.1), but 17 after two epochs and 7.9 after eleven, so that a
    shorter run shows nothing; mean for five epochs, then hardest, 2.3 (77.6), and 2.9 after eleven: taken. On test,
    AP, three seeds (`benchmarks/learning.py`): AUC 73.9 (95% over documents: 69.7 to 78.0; seeds 72.6 to 75.6).
    """
    settings = ("training.epochs=20", "training.learning_rate=3e-3", "objective.mean_epochs=5")
    return _small(hessel_2019(), PACKAGED, *settings)


def tiny_li_2022() -> TrainConfig:
    """Li 2022 in small: one layer of 128 numbers each side, a warm-up of 50 steps."""
    layers = [
        f"{part}.{size}" for part in ("text", "image") for size in ("layers=1", "heads=4", "hidden_dimensions=256")
    ]
    steps = ("training.learning_rate=5e-4", "training.warmup_steps=50", "training.warmup_from=1e-5")
    return _small(li_2022(), PACKAGED, *layers, "training.epochs=10", *steps)


def tiny_alikhani_2022() -> TrainConfig:
    """Alikhani 2022 in small: word2vec of 50 numbers, LSTM of 2 x 50, batches of 16."""
    settings = ("training.epochs=10", "training.learning_rate=1e-3", "training.negative_documents=15")
    return _small(alikhani_2022(), TRAINED, *settings)


def tiny_liu_2020() -> TrainConfig:
    """Liu 2020 in small: 2,000 n-gram buckets, batches of 16."""
    sizes = ("text.heads=2", "text.head_dimensions=16", "text.hidden_dimensions=128", "text.buckets=2000")
    steps = ("training.epochs=10", "training.learning_rate=1e-3", "training.schedule.epochs=4")
    return _small(liu_2020(), PACKAGED, *sizes, *steps, "training.negative_documents=15")


def tiny_liu_2020_multi_source() -> TrainConfig:
    """Liu 2020's fusion in small; `training.start_from` takes models of `tiny-liu-2020`."""
    steps = ("training.epochs=6", "training.learning_rate=5e-4", "training.schedule.epochs=3")
    return override(
        tiny_liu_2020(),
        [
            "recipe=tiny-liu-2020-multi-source",
            "data.roles=",
            "text.name=multi-source",
            *steps,
            "training.frozen_epochs=1",
        ],
    )


def _small(base: TrainConfig, word_vectors: str, *settings: str) -> TrainConfig:
    """Return a recipe in 128 dimensions with word vectors of 50, under the name `tiny-...`; the last epoch is kept."""
    words = (
        f"text.word_vectors={word_vectors}",
        f"text.word_dimensions={PACKAGED_DIMENSIONS}",
        "text.min_word_count=1",
    )
    return override(base, [f"recipe=tiny-{base.recipe}", "dimensions=128", *words, "training.select=last", *settings])


_ALL = (
    tiny,
    closed_form,
    joint_embeddings,
    hessel_2019,
    hessel_2019_fine_tuned,
    li_2022,
    alikhani_2022,
    alikhani_2022_clue,
    alikhani_2022_fine_tuned,
    liu_2020,
    liu_2020_multi_source,
    tiny_hessel_2019,
    tiny_li_2022,
    tiny_alikhani_2022,
    tiny_liu_2020,
    tiny_liu_2020_multi_source,
)
RECIPES: Mapping[str, Callable[[], TrainConfig]] = {make.__name__.replace("_", "-"): make for make in _ALL}


def recipe(name: str) -> TrainConfig:
    """Return the named recipe's configuration.

    Raises:
        ConfigError: there is no recipe of that name.
    """
    return known_recipe(name)()


def known_recipe(name: str) -> Callable[[], TrainConfig]:
    """Return what makes the named recipe's configuration; making it imports its towers.

    Raises:
        ConfigError: there is no recipe of that name.
    """
    return pick(RECIPES, name, what="recipe")
