"""A new model before its first step: vocabulary, word vectors and standardisation from the whole training split.

Every worker counts its own documents; the counts are gathered, so that all start from the same model whatever their
number. Weights of models trained before are taken over last (`starting.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from schemas.errors import ConfigError
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.loading import TrainingData
from training.data.requirements import words_start
from training.data.streams import StreamKey, seed_of
from training.loop.context import Context
from training.loop.starting import start_from_models
from training.model import LinkModel, ModelCard
from training.relations import count_labels, known_rates
from training.text.vocabulary import Vocabulary, count_words, tokenize
from training.towers.build import text_settings
from training.towers.inputs import gather_json
from training.towers.words import RANDOM_WORDS


def new_model(config: TrainConfig, data: TrainingData, context: Context) -> LinkModel:
    """Return the untrained model of a run, equal on every worker, on the context's device.

    Raises:
        ConfigError: word vectors, a package or a model to start from are not there, or do not fit.
    """
    vocabulary = None
    if config.needs.words:
        if words_start(config) == RANDOM_WORDS:
            context.say("words start from random vectors, as text.word_vectors is empty; --set text.word_vectors=FILE")
        vocabulary = _vocabulary(config, data.training.documents, context)
    rates = relation_rates(config, data, context)
    card = ModelCard(config=config, data=data.identity, relations=tuple(rates))
    with seeded(context.device, "weights", config.training.seed):
        model = LinkModel(card, vocabulary)
    if model.relations is not None:
        model.relations.set_rates(list(rates.values()))
    for tower in (model.text, model.image):
        tower.initialise(data.training, context, config.training.seed)
    start_from_models(model, context.find_model)
    return model.to(context.device)


@contextmanager
def seeded(device: torch.device, *key: StreamKey) -> Iterator[None]:
    """Make torch's random numbers inside depend on the key alone, and leave its generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed_of(*key))
        yield


def _vocabulary(config: TrainConfig, documents: DocumentSet, context: Context) -> Vocabulary:
    """Return the vocabulary of all workers' training sentences, and of region labels where they are read.

    Raises:
        ConfigError: a document is in a language that has no word vectors.
    """
    texts: Iterable[str] = documents.texts
    if documents.sources is not None:
        texts = [" ".join(row) for row in documents.sources]
    languages = None
    if known := config.needs.languages:
        languages = [(documents.languages or ())[document] for document in documents.sentences.owners]
        if unknown := sorted(set(languages) - set(known)):
            raise ConfigError(
                f"text.aligned_vectors = {', '.join(known)}: the data set has documents in {', '.join(unknown)}; "
                "name a file of aligned word vectors for each language"
            )
    counts: Counter[str] = Counter()
    for part in gather_json(count_words(texts, languages), context):
        counts.update(part)
    labels = _label_words(documents, context) if config.needs.labels else frozenset[str]()
    return text_settings(config).vocabulary(counts, labels)


def _label_words(documents: DocumentSet, context: Context) -> frozenset[str]:
    """Return the words of the labels of all workers' regions."""
    labels = sorted(set(documents.regions.labels)) if documents.regions is not None else []
    parts = gather_json(labels, context)
    return frozenset(token for part in parts for label in part for token in tokenize(label))


def relation_rates(config: TrainConfig, data: TrainingData, context: Context) -> dict[str, float]:
    """Return the share of true labels of each relation that is to be predicted, by name; none where none is read.

    Raises:
        UsageError: the training split has no label that the objective could learn from.
    """
    relations = data.training.documents.relations
    if relations is None:
        return {}
    counts: Counter[str] = Counter()
    for part in gather_json(count_labels(relations), context):
        counts.update(part)
    return known_rates(counts, wanted=config.needs.relations, reference=data.identity.reference)
