"""Weights a run starts from that other runs trained, and how long they stay as they are.

Three uses: `multi-source` from single-source models (Liu 2020, 6.2: an encoder a role, word table and image tower of
the caption's model, the fuser new and trained alone for an epoch); all-for-one (5.2.3: all but the word vectors, which
are another language's); and plain continuation of a model on other data.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from schemas.documents import Role
from schemas.errors import ConfigError, MultilinkError
from training.config import LoopConfig
from training.loop.context import FindModel
from training.model import LinkModel
from training.text.vocabulary import Vocabulary

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
    named = started_from(config.training)
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


def started_from(settings: LoopConfig) -> dict[str, str]:
    """Return source -> folder or address of a model; the source of a bare one is "" (every one)."""
    return dict(map(split_start, settings.start_from))


def split_start(item: str) -> tuple[str, str]:
    """Return source and model of an item of `training.start_from`."""
    source, separator, model = item.partition(SOURCE_SIGN)
    is_role = bool(separator) and source in {role.value for role in Role}
    return (source, model) if is_role else (EVERY_SOURCE, item)


def _new_modules(model: LinkModel) -> tuple[str, ...]:
    """Return what the names of parameters begin with that start from no other model."""
    return tuple(f"text.{name}." for name in model.text.new_modules)


def _by_source(model: LinkModel, sources: Sequence[str], givers: Mapping[str, LinkModel]) -> dict[str, LinkModel]:
    """Return the model that each source's encoder starts from."""
    found = {source: givers.get(source, givers.get(EVERY_SOURCE)) for source in sources}
    if missing := [source for source, giver in found.items() if giver is None]:
        raise _mismatch(model, f"expected a model for each source, found none for {', '.join(missing)}")
    given = {source: giver for source, giver in found.items() if giver is not None}
    for giver in given.values():
        if not giver.text.own_encoder:
            tower = giver.card.config.text.name
            raise _mismatch(model, f"expected models with text.name = 'subword-attention', found '{tower}'")
    return given


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


def _take_words(model: LinkModel, target: Tensor, given: Tensor, vocabulary: Vocabulary | None) -> None:
    """Copy the rows of known words, and the n-gram rows after them where both tables have equally many."""
    if model.vocabulary is None or vocabulary is None:
        raise _mismatch(model, "expected a model that reads words")
    if target.shape[1] != given.shape[1]:
        raise _mismatch(model, f"word vectors of {given.shape[1]} numbers, this run's have {target.shape[1]}")
    known = vocabulary.numbers
    pairs = [(row, known[word]) for row, word in enumerate(model.vocabulary.words) if word in known]
    rows, others = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    target[rows] = given[others]
    own_ngrams, ngrams = target[len(model.vocabulary) :], given[len(vocabulary) :]
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
