"""A new model before its first step: vocabulary, word vectors and standardisation from the whole training split.

Every worker counts its own shards; the counts are gathered, so that all start from the same model whatever their
number. Weights of models trained before are taken over last (`starting.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from schemas.errors import ConfigError
from training.config import TrainConfig
from training.data.documents import DocumentSet, HeldSplit
from training.data.loading import TrainingData
from training.data.streams import StreamKey, seed_of
from training.encoders.cnn import start_weights
from training.encoders.fine_tuned import FineTunedTower
from training.encoders.linear import LinearMap
from training.encoders.multi_source import MultiSourceTower
from training.encoders.sentence import SentenceTower
from training.encoders.standardise import Moments, moments
from training.encoders.subword_attention import SubwordAttentionTower, SubwordEmbedding
from training.encoders.words import WordTower
from training.fitting import READS_WORDS, shares_concepts
from training.loop.context import Context
from training.loop.starting import start_from_models
from training.model import LinkModel, ModelCard
from training.relations import count_labels, known_rates
from training.text.fasttext import is_fasttext, open_fasttext
from training.text.tokens import tokenize
from training.text.vocabulary import Vocabulary, count_words
from training.text.word2vec import train_word2vec
from training.text.word_vectors import (
    TRAINED,
    WordVector,
    existing,
    initial_vectors,
    read_aligned,
    read_vectors,
    uniform_vectors,
)


def new_model(config: TrainConfig, data: TrainingData, context: Context) -> LinkModel:
    """Return the untrained model of a run, equal on every worker, on the context's device.

    Raises:
        ConfigError: word vectors, a package or a model to start from are not there, or do not fit.
    """
    vocabulary = _vocabulary(config, data.training.documents, context) if config.encoder.text in READS_WORDS else None
    rates = relation_rates(config, data, context)
    card = ModelCard(config=config, data=data.identity, relations=tuple(rates))
    with seeded(context.device, "weights", config.training.seed):
        model = LinkModel(card, vocabulary)
    if model.relations is not None:
        model.relations.set_rates(list(rates.values()))
    _start_words(model, data.training, context)
    _start_moments(model, data.training.documents, context)
    if isinstance(model.image, FineTunedTower):
        start_weights(model.image.cnn, config.encoder.cnn, config.encoder.cnn_weights)
    start_from_models(model, context.find_model)
    return model.to(context.device)


@contextmanager
def seeded(device: torch.device, *key: StreamKey) -> Iterator[None]:
    """Make torch's random numbers inside depend on the key alone, and leave its generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed_of(*key))
        yield


def _start_words(model: LinkModel, split: HeldSplit, context: Context) -> None:
    config = model.card.config
    if isinstance(model.text, WordTower):
        model.text.set_word_vectors(_word_vectors(config, model.text.vocabulary, split, context))
    if isinstance(model.text, SubwordAttentionTower | MultiSourceTower):
        _start_subwords(model.text.embedding, config, split, context)


def _start_subwords(embedding: SubwordEmbedding, config: TrainConfig, split: HeldSplit, context: Context) -> None:
    """Set words and n-grams; of a fastText model, a word's own row, not its mean with its n-grams."""
    encoder, seed = config.encoder, config.training.seed
    if not _is_fasttext(encoder.word_vectors) or embedding.subwords is None:
        embedding.set_word_vectors(_word_vectors(config, embedding.vocabulary, split, context))
        if embedding.subwords is not None:
            rows = uniform_vectors(encoder.buckets, encoder.word_dimensions, seed, "n-gram vectors")
            embedding.set_ngram_vectors(rows)
        return
    model = open_fasttext(existing(encoder.word_vectors))
    known, wanted = model.subwords, embedding.subwords
    is_inside = known.shortest <= wanted.shortest and wanted.longest <= known.longest
    if known.buckets != wanted.buckets or not is_inside or model.dimensions != encoder.word_dimensions:
        raise ConfigError(
            f"{encoder.word_vectors}: {known.buckets} buckets of {known.shortest}- to {known.longest}-grams, vectors "
            f"of {model.dimensions} numbers; set encoder.buckets={known.buckets}, encoder.ngrams within that range "
            f"and encoder.word_dimensions={model.dimensions}"
        )
    own_rows = ((word, model.own_row(word)) for word in embedding.vocabulary.words)
    vectors = initial_vectors(
        embedding.vocabulary,
        dimensions=encoder.word_dimensions,
        seed=seed,
        known=((word, row) for word, row in own_rows if row is not None),
    )
    embedding.set_word_vectors(vectors)
    embedding.set_ngram_vectors(np.array(model.ngram_rows))


def _word_vectors(config: TrainConfig, vocabulary: Vocabulary, split: HeldSplit, context: Context) -> Any:
    """Return V x w starting vectors."""
    encoder = config.encoder
    known: Iterable[WordVector] = ()
    if encoder.aligned_vectors:
        known = read_aligned(encoder.aligned_vectors, vocabulary.numbers, dimensions=encoder.word_dimensions)
    elif encoder.word_vectors == TRAINED:
        known = _trained_vectors(config, split, context)
    elif encoder.word_vectors:
        known = read_vectors(encoder.word_vectors, vocabulary.numbers, dimensions=encoder.word_dimensions)
    return initial_vectors(vocabulary, dimensions=encoder.word_dimensions, seed=config.training.seed, known=known)


def _trained_vectors(config: TrainConfig, split: HeldSplit, context: Context) -> Iterable[WordVector]:
    """Return word2vec vectors of the whole training split, its sentences in the order of the split's index."""
    own = {
        int(place): split.documents.texts[split.documents.sentences.rows(row)]
        for place, row in enumerate(split.local)
        if row >= 0
    }
    documents: dict[int, Sequence[str]] = {}
    for part in _gather_json([[place, list(texts)] for place, texts in own.items()], context):
        documents.update((place, texts) for place, texts in part)
    texts = [text for place in sorted(documents) for text in documents[place]]
    return train_word2vec(texts, dimensions=config.encoder.word_dimensions, seed=config.training.seed)


def _vocabulary(config: TrainConfig, documents: DocumentSet, context: Context) -> Vocabulary:
    """Return the vocabulary of all workers' training sentences, and of region labels where they are read.

    Of several languages, only words that have an aligned vector are known: the vectors are frozen (N 6.3).
    """
    encoder = config.encoder
    texts: Iterable[str] = documents.texts
    if documents.sources is not None:
        texts = [" ".join(row) for row in documents.sources]
    languages = None
    if encoder.aligned_vectors:
        languages = [(documents.languages or ())[document] for document in documents.sentences.owners]
        _check_languages(encoder.aligned_vectors, languages)
    counts: Counter[str] = Counter()
    for part in _gather_json(count_words(texts, languages), context):
        counts.update(part)
    if shares_concepts(encoder):
        counts |= _label_words(documents, encoder.min_word_count, context)
    if encoder.aligned_vectors:
        known = read_aligned(encoder.aligned_vectors, counts, dimensions=encoder.word_dimensions)
        counts = Counter({word: counts[word] for word, _ in known})
    return Vocabulary.from_counts(counts, min_count=encoder.min_word_count)


def _label_words(documents: DocumentSet, count: int, context: Context) -> Counter[str]:
    """Return the words of the labels of all workers' regions, each counted often enough to be known."""
    labels = set(documents.regions.labels) if documents.regions is not None else set()
    words: set[str] = set()
    for part in _gather_json(sorted(labels), context):
        words.update(token for label in part for token in tokenize(label))
    return Counter(dict.fromkeys(words, count))


def _check_languages(aligned: Sequence[str], languages: Iterable[str]) -> None:
    known = {source.partition("=")[0] for source in aligned}
    if unknown := sorted(set(languages) - known):
        raise ConfigError(
            f"encoder.aligned_vectors = {tuple(aligned)!r}: the data set has documents in {', '.join(unknown)}; "
            "name a file of aligned word vectors for each language"
        )


def _start_moments(model: LinkModel, documents: DocumentSet, context: Context) -> None:
    if isinstance(model.text, SentenceTower) and documents.sentence_vectors is not None:
        model.text.standardise.set_moments(_sum_moments(moments(documents.sentence_vectors), context))
    if isinstance(model.image, LinearMap) and model.image.standardise is not None:
        places = np.bincount(documents.image_rows, minlength=len(documents.image_bank))
        model.image.standardise.set_moments(_sum_moments(moments(documents.image_bank, places), context))


def _is_fasttext(source: str) -> bool:
    return source.endswith(".bin") and is_fasttext(existing(source))


def _gather_json(own: Any, context: Context) -> Iterator[Any]:
    """Yield every worker's value, in rank order; values travel as JSON bytes."""
    data = np.frombuffer(json.dumps(own).encode(), dtype=np.uint8)
    for part in context.gather(torch.from_numpy(data.copy()).to(context.device)):
        yield json.loads(part.cpu().numpy().tobytes())


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


def _sum_moments(own: Moments, context: Context) -> Moments:
    row = torch.from_numpy(own.packed())[None].to(context.device)
    return Moments.unpacked(torch.cat(context.gather(row)).sum(dim=0).cpu().numpy())
