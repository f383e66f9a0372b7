"""A new model before its first step: vocabulary, word vectors and standardisation from the whole training split.

Every worker counts its own shards; the counts are gathered, so that all start from the same model whatever their
number.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from training.config import TextEncoder, TrainConfig
from training.data.documents import DocumentSet
from training.data.loading import TrainingData
from training.data.streams import StreamKey, seed_of
from training.encoders.gru import GruTower
from training.encoders.sentence import SentenceTower
from training.encoders.standardise import Moments, moments
from training.loop.context import Context
from training.model import LinkModel, ModelCard
from training.relations import count_labels, known_rates
from training.text.vocabulary import Vocabulary, count_words
from training.text.word_vectors import initial_vectors


def new_model(config: TrainConfig, data: TrainingData, context: Context) -> LinkModel:
    """Return the untrained model of a run, equal on every worker, on the context's device."""
    documents = data.training.documents
    vocabulary = None
    if config.encoder.text is TextEncoder.GRU:
        vocabulary = _vocabulary(config, documents.texts, context)
    rates = relation_rates(config, data, context)
    card = ModelCard(config=config, data=data.identity, relations=tuple(rates))
    with seeded(context.device, "weights", config.training.seed):
        model = LinkModel(card, vocabulary)
    if model.relations is not None:
        model.relations.set_rates(list(rates.values()))
    _start_text(model, documents, context)
    if model.image.standardise is not None:
        places = np.bincount(documents.image_rows, minlength=len(documents.image_bank))
        model.image.standardise.set_moments(_sum_moments(moments(documents.image_bank, places), context))
    return model.to(context.device)


@contextmanager
def seeded(device: torch.device, *key: StreamKey) -> Iterator[None]:
    """Make torch's random numbers inside depend on the key alone, and leave its generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed_of(*key))
        yield


def _start_text(model: LinkModel, documents: DocumentSet, context: Context) -> None:
    config = model.card.config
    if isinstance(model.text, GruTower):
        model.text.set_word_vectors(
            initial_vectors(
                model.text.vocabulary,
                dimensions=config.encoder.word_dimensions,
                path=config.encoder.word_vectors,
                seed=config.training.seed,
            )
        )
    if isinstance(model.text, SentenceTower) and documents.sentence_vectors is not None:
        found = _sum_moments(moments(documents.sentence_vectors), context)
        model.text.standardise.set_moments(found)


def relation_rates(config: TrainConfig, data: TrainingData, context: Context) -> dict[str, float]:
    """Return the share of true labels of each relation that is to be predicted, by name; none where none is read.

    Raises:
        UsageError: the training split has no label that the objective could learn from.
    """
    relations = data.training.documents.relations
    if relations is None:
        return {}
    counts: Counter[str] = Counter()
    for part in _gather_json(count_labels(relations), context):
        counts.update(part)
    return known_rates(counts, wanted=config.objective.relations, reference=data.identity.reference)


def _vocabulary(config: TrainConfig, texts: Sequence[str], context: Context) -> Vocabulary:
    """Return the vocabulary of all workers' training sentences."""
    counts: Counter[str] = Counter()
    for part in _gather_json(count_words(texts), context):
        counts.update(part)
    return Vocabulary.from_counts(counts, min_count=config.encoder.min_word_count)


def _gather_json(counts: Mapping[str, int], context: Context) -> Iterator[dict[str, int]]:
    """Yield every worker's counts; they travel as JSON bytes."""
    own = np.frombuffer(json.dumps(dict(counts)).encode(), dtype=np.uint8)
    for part in context.gather(torch.from_numpy(own.copy()).to(context.device)):
        yield json.loads(part.cpu().numpy().tobytes())


def _sum_moments(own: Moments, context: Context) -> Moments:
    row = torch.from_numpy(own.packed())[None].to(context.device)
    return Moments.unpacked(torch.cat(context.gather(row)).sum(dim=0).cpu().numpy())
