"""A new model before its first step: vocabulary, word vectors and standardisation from training documents.

All documents of a split of up to `SAMPLED_DOCUMENTS` are counted, and of a larger one as many. Every worker counts its
share; the counts are gathered, so that all start from the same model whatever their number.

Weights that other models trained are taken over last. Three uses: `multi-source` from single-source models (Liu 2020,
6.2: an encoder a role, word table and image tower of the caption's model, the fuser new and trained alone for an
epoch); all-for-one (5.2.3: all but the word vectors, which are another language's); and plain continuation of a model
on other data.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from schemas.documents import Role
from schemas.messages import ConfigError, MultilinkError
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.loading import TrainingData
from training.data.ragged import seeded
from training.data.split import Sample, sample
from training.loop.context import Context, FindModel
from training.model import LinkModel, ModelCard, count_labels, known_rates
from training.text.vocabulary import Vocabulary, count_words, tokenize
from training.towers.inputs import gather_json
from training.towers.words import RANDOM_WORDS

EVERY_SOURCE = ""
SOURCE_SIGN = "="


def start_from_models(model: LinkModel, find: FindModel = Path) -> None:
    """Take over the weights that `training.start_from` names; without any, leave the model as it is.

    Args:
        model: takes them.
        find: gives the local folder of a model that is named.

    Raises:
        ConfigError: a folder holds no model, or one whose towers are of another kind or size.
    """
    config = model.card.config
    named = dict(map(split_start, config.training.start_from))
    if not named:
        return
    givers = {source: _load(name, find) for source, name in named.items()}
    sources = config.needs.sources
    whole = givers.get(EVERY_SOURCE)
    if whole is not None and len(givers) == 1 and whole.card.config.needs.sources == sources:
        _take(model, whole.state_dict(), whole.vocabulary)
        return
    if not sources:
        raise _mismatch(model, "expected one MODEL; ROLE=MODEL is for a tower of several sources")
    by_source = _by_source(model, sources, givers)
    leader = by_source.get(Role.CAPTION, next(iter(by_source.values())))
    weights = dict(leader.state_dict())
    for source, giver in by_source.items():
        for name, value in giver.text.get_submodule(giver.text.own_encoder).state_dict().items():
            weights[f"text.{model.text.source_encoders}.{source}.{name}"] = value
    _take(model, weights, leader.vocabulary, fresh=_new_modules(model))


def set_trainable(model: LinkModel, epoch: int) -> None:
    """Say which parameters an epoch (from 1) trains: not frozen word vectors, nor for a while what was taken over."""
    config = model.card.config
    settings = config.training
    is_early = bool(settings.start_from) and epoch <= settings.frozen_epochs
    fresh = _new_modules(model)
    for name, parameter in model.named_parameters():
        is_frozen_word = name in model.word_tables and not config.text.trains_words
        is_held = is_early and not name.startswith(fresh) and (settings.start_words or name not in model.word_tables)
        parameter.requires_grad_(not is_frozen_word and not is_held)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(
            f"training.frozen_epochs = {settings.frozen_epochs}: everything was taken over from training.start_from, "
            "so nothing would be trained; use --set training.frozen_epochs=0"
        )


def split_start(item: str) -> tuple[str, str]:
    """Return source and model of an item of `training.start_from`; the source of a bare one is "" (every one)."""
    source, separator, model = item.partition(SOURCE_SIGN)
    is_role = bool(separator) and source in {role.value for role in Role}
    return (source, model) if is_role else (EVERY_SOURCE, item)


def _new_modules(model: LinkModel) -> tuple[str, ...]:
    """Return what the names of parameters begin with that start from no other model."""
    return tuple(f"text.{name}." for name in model.text.new_modules)


def _by_source(model: LinkModel, sources: Sequence[str], givers: Mapping[str, LinkModel]) -> dict[str, LinkModel]:
    """Return the model that each source's encoder starts from."""
    giver_of = {source: givers.get(source, givers.get(EVERY_SOURCE)) for source in sources}
    if missing := [source for source, giver in giver_of.items() if giver is None]:
        raise _mismatch(model, f"expected a model for each source, found none for {', '.join(missing)}")
    present = {source: giver for source, giver in giver_of.items() if giver is not None}
    for giver in present.values():
        if not giver.text.own_encoder:
            tower = giver.card.config.text.name
            raise _mismatch(model, f"expected models with text.name = 'subword-attention', found '{tower}'")
    return present


def _take(
    model: LinkModel, weights: Mapping[str, Tensor], vocabulary: Vocabulary | None, *, fresh: tuple[str, ...] = ()
) -> None:
    """Copy weights by name, word tables word by word; every parameter but those of `fresh` and the banks must be there.

    A tensor that two modules share (Li 2022: regions' concepts are words of the text's table) has two names in the
    state. It is copied once, under its first name, which is the one that `word_tables` has.
    """
    distinct = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, target in model.state_dict().items():
        if name not in distinct or name.startswith((*fresh, "steps.")):
            continue
        if name not in weights:
            raise _mismatch(model, f"its models have no weights for {name}")
        if name in model.word_tables:
            if model.card.config.training.start_words:
                _take_words(model, target, weights[name], vocabulary)
        elif target.shape != weights[name].shape:
            shapes = f"{tuple(weights[name].shape)}, this run {tuple(target.shape)}"
            raise _mismatch(model, f"{name} has shape {shapes}")
        else:
            target.copy_(weights[name])


def _take_words(model: LinkModel, target: Tensor, table: Tensor, vocabulary: Vocabulary | None) -> None:
    """Copy the rows of known words, and the n-gram rows after them where both tables have equally many."""
    if model.vocabulary is None or vocabulary is None:
        raise _mismatch(model, "expected a model that reads words")
    if target.shape[1] != table.shape[1]:
        raise _mismatch(model, f"word vectors of {table.shape[1]} numbers, this run's have {target.shape[1]}")
    numbers = vocabulary.numbers
    pairs = [(row, numbers[word]) for row, word in enumerate(model.vocabulary.words) if word in numbers]
    rows, others = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    target[rows] = table[others]
    own_ngrams, ngrams = target[len(model.vocabulary) :], table[len(vocabulary) :]
    if own_ngrams.shape != ngrams.shape:
        raise _mismatch(model, f"{len(ngrams)} n-gram buckets, this run has {len(own_ngrams)}")
    own_ngrams.copy_(ngrams)


def _load(name: str, find: FindModel) -> LinkModel:
    try:
        return LinkModel.load(find(name))
    except MultilinkError as problem:
        raise ConfigError(f"training.start_from = '{name}': {problem}") from problem


def _mismatch(model: LinkModel, what: str) -> ConfigError:
    return ConfigError(f"training.start_from = {model.card.config.training.start_from!r}: {what}")


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


def _vocabulary(config: TrainConfig, documents: Sample, context: Context) -> Vocabulary:
    """Return the vocabulary of all workers' training sentences, and of region labels where they are read.

    Raises:
        ConfigError: a document is in a language that has no word vectors.
    """
    counted, labels = Counter[str](), set[str]()
    for part in documents:
        counted += count_words(part.row_texts, _languages(config, part))
        if config.needs.labels and part.regions is not None:
            labels.update(part.regions.labels)
    counts = sum(map(Counter, gather_json(counted, context)), Counter[str]())
    all_labels = (label for part in gather_json(sorted(labels), context) for label in part)
    return config.text.vocabulary(counts, frozenset(token for label in all_labels for token in tokenize(label)))


def _languages(config: TrainConfig, documents: DocumentSet) -> list[str] | None:
    """Return the language of each sentence of documents, for a tower that reads several languages."""
    if not (supported := config.needs.languages):
        return None
    languages = [(documents.languages or ())[document] for document in documents.sentences.owners]
    if unknown := sorted(set(languages) - set(supported)):
        raise ConfigError(
            f"text.aligned_vectors = {', '.join(supported)}: the data set has documents in {', '.join(unknown)}; "
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
    counted = sum((count_labels(part.relations or ()) for part in documents), Counter[str]())
    counts = sum(map(Counter, gather_json(counted, context)), Counter[str]())
    return known_rates(counts, wanted=config.needs.relations, reference=reference)
