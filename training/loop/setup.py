"""A new model before its first step: vocabulary, word vectors and standardisation from the whole training split.

Every worker counts its own documents; the counts are gathered, so that all start from the same model whatever their
number. Weights of models trained before are taken over last (`starting.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch

from schemas.errors import ConfigError
from training.config import TRAINED, TrainConfig, WordsConfig
from training.data.documents import DocumentSet
from training.data.loading import TrainingData
from training.data.requirements import RANDOM_WORDS, inputs_of, words_start
from training.data.streams import StreamKey, seed_of
from training.loop.context import Context
from training.loop.starting import start_from_models
from training.model import LinkModel, ModelCard
from training.relations import count_labels, known_rates
from training.text.vocabulary import Vocabulary, count_words, tokenize
from training.text.word_vectors import read_aligned, read_vectors
from training.towers.inputs import gather_json


def new_model(config: TrainConfig, data: TrainingData, context: Context) -> LinkModel:
    """Return the untrained model of a run, equal on every worker, on the context's device.

    Raises:
        ConfigError: word vectors, a package or a model to start from are not there, or do not fit.
    """
    vocabulary = None
    if isinstance(config.text, WordsConfig):
        if words_start(config) == RANDOM_WORDS:
            context.say("words start from random vectors, as text.word_vectors is empty; --set text.word_vectors=FILE")
        reads_labels = inputs_of(config).labels
        vocabulary = _vocabulary(config.text, data.training.documents, context, reads_labels=reads_labels)
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


def _vocabulary(config: WordsConfig, documents: DocumentSet, context: Context, *, reads_labels: bool) -> Vocabulary:
    """Return the vocabulary of all workers' training sentences, and of region labels where they are read.

    Of several languages, only words that have an aligned vector are known: the vectors are frozen (N 6.3); with
    `only_vector_words`, only those that have a vector.
    """
    texts: Iterable[str] = documents.texts
    if documents.sources is not None:
        texts = [" ".join(row) for row in documents.sources]
    languages = None
    if config.aligned_vectors:
        languages = [(documents.languages or ())[document] for document in documents.sentences.owners]
        _check_languages(config.aligned_vectors, languages)
    counts: Counter[str] = Counter()
    for part in gather_json(count_words(texts, languages), context):
        counts.update(part)
    if reads_labels:
        counts |= _label_words(documents, config.min_word_count, context)
    if config.aligned_vectors:
        known = read_aligned(config.aligned_vectors, counts, dimensions=config.word_dimensions)
        counts = Counter({word: counts[word] for word, _ in known})
    elif config.only_vector_words and config.word_vectors != TRAINED:
        known = read_vectors(config.word_vectors, counts, dimensions=config.word_dimensions)
        counts = Counter({word: counts[word] for word, _ in known})
    return Vocabulary.from_counts(counts, min_count=config.min_word_count)


def _label_words(documents: DocumentSet, count: int, context: Context) -> Counter[str]:
    """Return the words of the labels of all workers' regions, each counted often enough to be known."""
    labels = set(documents.regions.labels) if documents.regions is not None else set()
    words: set[str] = set()
    for part in gather_json(sorted(labels), context):
        words.update(token for label in part for token in tokenize(label))
    return Counter(dict.fromkeys(words, count))


def _check_languages(aligned: Sequence[str], languages: Iterable[str]) -> None:
    known = {source.partition("=")[0] for source in aligned}
    if unknown := sorted(set(languages) - known):
        raise ConfigError(
            f"text.aligned_vectors = {tuple(aligned)!r}: the data set has documents in {', '.join(unknown)}; "
            "name a file of aligned word vectors for each language"
        )


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
    return known_rates(counts, wanted=config.objective.relations, reference=data.identity.reference)
