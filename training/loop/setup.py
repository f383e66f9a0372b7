"""A new model before its first step: vocabulary, word vectors and standardisation from training documents.

All documents of a split of up to `SAMPLED_DOCUMENTS` are counted, and of a larger one as many. Every worker counts its
share; the counts are gathered, so that all start from the same model whatever their number. Weights of models trained
before are taken over last (`starting.py`).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from schemas.errors import ConfigError
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.loading import TrainingData
from training.data.split import Sample, sample
from training.data.streams import StreamKey, seed_of
from training.loop.context import Context
from training.loop.starting import start_from_models
from training.model import LinkModel, ModelCard
from training.relations import count_labels, known_rates
from training.text.vocabulary import Vocabulary, count_words, tokenize
from training.towers.inputs import gather_json
from training.towers.words import RANDOM_WORDS


def new_model(config: TrainConfig, data: TrainingData, context: Context) -> LinkModel:
    """Return the untrained model of a run, equal on every worker, on the context's device.

    Raises:
        ConfigError: word vectors, a package or a model to start from are not there, or do not fit.
    """
    vocabulary, seed = None, config.training.seed
    documents = sample(data.training, seed=seed, rank=context.rank, world_size=context.world_size)
    if config.needs.words:
        if config.words_start == RANDOM_WORDS:
            context.say("words start from random vectors, as text.word_vectors is empty; --set text.word_vectors=FILE")
        vocabulary = _vocabulary(config, documents, context)
    rates = relation_rates(config, documents, context, reference=data.identity.reference)
    card = ModelCard(config=config, data=data.identity, relations=tuple(rates))
    with seeded(context.device, "weights", seed):
        model = LinkModel(card, vocabulary)
    if model.relations is not None:
        model.relations.set_rates(list(rates.values()))
    for tower in (model.text, model.image):
        tower.initialise(documents, context, seed)
    start_from_models(model, context.find_model)
    return model.to(context.device)


@contextmanager
def seeded(device: torch.device, *key: StreamKey) -> Iterator[None]:
    """Make torch's random numbers inside depend on the key alone, and leave its generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed_of(*key))
        yield


def _vocabulary(config: TrainConfig, documents: Sample, context: Context) -> Vocabulary:
    """Return the vocabulary of all workers' training sentences, and of region labels where they are read.

    Raises:
        ConfigError: a document is in a language that has no word vectors.
    """
    own, labels = Counter[str](), set[str]()
    for part in documents:
        own += count_words(part.row_texts, _languages(config, part))
        if config.needs.labels and part.regions is not None:
            labels.update(part.regions.labels)
    counts = sum(map(Counter, gather_json(own, context)), Counter[str]())
    known = (label for part in gather_json(sorted(labels), context) for label in part)
    return config.text.vocabulary(counts, frozenset(token for label in known for token in tokenize(label)))


def _languages(config: TrainConfig, documents: DocumentSet) -> list[str] | None:
    """Return the language of each sentence of documents, for a tower that reads several languages."""
    if not (known := config.needs.languages):
        return None
    languages = [(documents.languages or ())[document] for document in documents.sentences.owners]
    if unknown := sorted(set(languages) - set(known)):
        raise ConfigError(
            f"text.aligned_vectors = {', '.join(known)}: the data set has documents in {', '.join(unknown)}; "
            "name a file of aligned word vectors for each language"
        )
    return languages


def relation_rates(config: TrainConfig, documents: Sample, context: Context, *, reference: str) -> dict[str, float]:
    """Return the share of true labels of each relation that is to be predicted, by name; none where none is read.

    Raises:
        UsageError: the training documents have no label that the objective could learn from.
    """
    if not config.needs.relations:
        return {}
    own = sum((count_labels(part.relations or ()) for part in documents), Counter[str]())
    counts = sum(map(Counter, gather_json(own, context)), Counter[str]())
    return known_rates(counts, wanted=config.needs.relations, reference=reference)
