"""A model evaluated on a split, shard by shard: what is held is a shard, the scores, and a bounded pool's vectors.

The model `class-names` is for who has trained nothing: a picture is what its classes are called (ConSE, 2014). Both of
its maps are the identity: a sentence is its encoder's vector, a picture the vector of the names of its classes, which
an extractor gives among those of sentences (a column `NETWORK-names`).
"""

from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import torch

from schemas.documents import Split
from schemas.features import NAMES, NAMES_ENCODER
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import UsageError
from schemas.overrides import override
from schemas.parts import Shard, sampled, split_parts
from training.data.loading import DatasetIdentity
from training.data.mapped import Column
from training.evaluation.evaluate import (
    POOL_DOCUMENTS,
    EvaluateConfig,
    Evaluation,
    has_links,
    nothing_to_score,
    scores_of,
)
from training.metrics.links import DocumentScores, joined_scores
from training.metrics.retrieval import linked_pool, score_pairs
from training.model import LinkModel, ModelCard
from training.recipes import closed_form
from training.shards import EmbeddedShard, embed_shard, joined_shards, run_shards

CLASS_NAMES = "class-names"
NETWORK, DIMENSIONS = "efficientnet-lite0", 512  # whose classes are named, where no data set says which


def read_sampled(lake: Lake, reference: str, config: EvaluateConfig) -> tuple[Manifest, Folder]:
    """Return the folder of `NAME[@VERSION]` and its manifest, splits cut to the documents that are evaluated."""
    manifest, folder = read_manifest(lake, reference)
    return sampled(manifest, config.max_documents), folder


def evaluate_model(
    model: LinkModel,
    lake: Lake,
    reference: str,
    split: Split | str = Split.TEST,
    *,
    with_pairs: bool = False,
    max_documents: int = 0,
) -> Evaluation:
    """Return how well a model finds the links of a split of `NAME[@VERSION]`, holding a shard and arrays of scores.

    Retrieval compares all with all: its pool is of at most `POOL_DOCUMENTS` documents, whose vectors are held.

    Args:
        model: to be evaluated.
        lake: holds the data set.
        reference: data set and version.
        split: whose documents are scored.
        with_pairs: whether retrieval is scored though links can be; where they cannot, it always is.
        max_documents: that are scored, a random sample of the split; 0: all.

    Raises:
        NotFoundError: the data set, version or split is not there.
        UsageError: the data set lacks the feature columns the model reads, or no link is known.
    """
    whole, folder = read_manifest(lake, reference)
    manifest = sampled(whole, max_documents)
    pool = frozenset(split_parts(sampled(manifest, POOL_DOCUMENTS), split))
    task = partial(_score_shard, manifest=manifest, folder=folder, pool=pool, with_pairs=with_pairs)
    parts = list(run_shards(model, task, split_parts(manifest, split)))
    ids = Column(pa.concat_arrays([part.ids for part in parts]))
    counts = [len(part.ids) for part in parts]
    scores, chance = (joined_scores(each, counts) for each in zip(*((p.scores, p.chance) for p in parts), strict=True))
    where = f"{reference}, split {split}"
    if not scores and not any(part.has_links for part in parts):
        raise nothing_to_score(where, scores.left_out)
    pairs = None
    if with_pairs or not scores:
        documents, vectors = joined_shards([part.embedded for part in parts if part.embedded is not None], model.steps)
        pairs = score_pairs(linked_pool(documents, vectors, documents.links or ()))
    return Evaluation(ids=ids, scores=scores, chance=chance, where=where, pairs=pairs)


@dataclass(frozen=True, slots=True)
class _ScoredShard:
    """What is kept of a shard: ids, scores, whether a link is known, and its vectors where retrieval may need them."""

    ids: pa.StringArray
    scores: DocumentScores
    chance: DocumentScores
    has_links: bool
    embedded: EmbeddedShard | None


def _score_shard(
    model: LinkModel, shard: Shard, *, manifest: Manifest, folder: Folder, pool: frozenset[Shard], with_pairs: bool
) -> _ScoredShard:
    embedded = embed_shard(manifest, folder, model, shard)
    matrices = [document.similarities() for document in embedded.vectors(model.steps)]
    scores, chance = scores_of(embedded.documents.ids, matrices, embedded.documents.links or ())
    is_kept = shard in pool and (with_pairs or not scores)
    return _ScoredShard(
        pa.array(embedded.documents.ids, pa.string()),
        scores,
        chance,
        has_links(embedded.documents),
        embedded if is_kept else None,
    )


def class_names_model(pictures: str = NETWORK + NAMES) -> LinkModel:
    """Return the model of a column of pictures."""
    columns = [f"data.sentence_features={NAMES_ENCODER}", f"data.image_features={pictures}"]
    identity = DatasetIdentity(
        dataset=CLASS_NAMES,
        version="0",
        manifest_digest="",
        image_features=pictures,
        image_dimensions=DIMENSIONS,
        sentence_features=NAMES_ENCODER,
        sentence_dimensions=DIMENSIONS,
    )
    config = override(closed_form(), [f"recipe={CLASS_NAMES}", f"dimensions={DIMENSIONS}", "link.steps=", *columns])
    model = LinkModel(ModelCard(config=config, data=identity), None).eval()
    for tower in (model.text, model.image):
        tower.set_map(torch.eye(DIMENSIONS), torch.zeros(DIMENSIONS))
    return model


def named_columns(manifest: Manifest) -> tuple[str, str]:
    """Return the sentence and the image column of a data set version that are compared.

    Raises:
        UsageError: it has none.
    """
    size, images = manifest.extractors("documents").get(NAMES_ENCODER), manifest.extractors("images")
    pictures = sorted(name for name in images if name.endswith(NAMES) and images[name] == size)
    if not pictures:
        wanted = f"features.images=...,{NETWORK}{NAMES} and features.sentences={NAMES_ENCODER}"
        raise UsageError(f"the data set has no vectors of class names; build it with {wanted}")
    return NAMES_ENCODER, pictures[0]
