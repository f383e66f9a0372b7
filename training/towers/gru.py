"""Text towers whose sentences pass a GRU: `gru` (Hessel 2019, 3.1), and `subword-gru` over words with their n-grams.

The last hidden state is the sentence. Words are laid out time step by time step over sentences of falling length (a
`PackedSequence` built directly), so neither the embedding nor the recurrence does any work on padding:

    sentences  a b c | d e     time steps  a d | b e | c     batch sizes  2 2 1
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from training.config import GruConfig, SubwordGruConfig
from training.data.documents import HeldSplit
from training.data.ragged import Int64, Ragged, to_device
from training.text.vocabulary import Vocabulary
from training.towers.dropout import RowDropout
from training.towers.inputs import Sizes, TextInput, Tower, TrainingPass, Workers, unit
from training.towers.recurrence import last_states
from training.towers.subword_attention import SubwordEmbedding, SubwordRows
from training.towers.words import WordRows, WordTower


class GruTower(WordTower):
    """N sentences -> N x `dimensions` unit vectors; the hidden state has as many numbers."""

    def __init__(self, config: GruConfig, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.dropout = RowDropout(config.dropout)
        self.gru = nn.GRU(config.word_dimensions, sizes.dimensions)
        self.recurrent_dropout = RowDropout(config.recurrent_dropout)

    def forward(self, rows: WordRows, training_pass: TrainingPass | None = None) -> Tensor:
        vectors_at = partial(self.vectors_at, rows)
        return unit(sentence_states(self.gru, self.dropout, rows.sentences, vectors_at, self.recurrent_dropout))


class SubwordGruTower(Tower):
    """N sentences -> N x `dimensions` unit vectors (Liu 2020, table 1, line 1.8)."""

    def __init__(self, config: SubwordGruConfig, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.embedding = SubwordEmbedding(config, sizes, vocabulary)
        self.dropout = RowDropout(config.dropout)
        self.gru = nn.GRU(config.word_dimensions, sizes.dimensions)

    def prepare(self, given: TextInput) -> SubwordRows:
        """Return the sentences' words with their n-grams."""
        return self.embedding.prepare(given)

    def initialise(self, split: HeldSplit, workers: Workers, seed: int) -> None:
        self.embedding.initialise(split, workers, seed)

    def forward(self, rows: SubwordRows, training_pass: TrainingPass | None = None) -> Tensor:
        return unit(sentence_states(self.gru, self.dropout, rows.sentences, partial(self.embedding, rows)))


def sentence_states(
    gru: nn.GRU,
    dropout: RowDropout,
    sentences: Ragged,
    vectors_at: Callable[[Int64], Tensor],
    recurrent: RowDropout | None = None,
) -> Tensor:
    """Return the N x d last states of sentences, given what makes T x w vectors of the words at T positions."""
    device = next(gru.parameters()).device
    if not len(sentences):
        return torch.zeros((0, gru.hidden_size), device=device)
    order, positions, batch_sizes = time_steps(sentences)
    owners, steps = (to_device(places, device) for places in word_places(order, batch_sizes))
    embedded = dropout(vectors_at(positions), owners, steps)
    if recurrent is not None and recurrent.training and recurrent.p > 0:
        ones_ND = torch.ones((len(order), gru.hidden_size), device=device)
        last_ND = dropped_states(gru, embedded, batch_sizes, recurrent(ones_ND, to_device(order, device)))
    elif device.type == "cpu":
        last_ND = last_states(gru, embedded, batch_sizes)
    else:
        last_ND = gru(PackedSequence(embedded, torch.from_numpy(batch_sizes)))[1][0]
    return last_ND.index_select(0, to_device(np.argsort(order), device))


def dropped_states(gru: nn.GRU, inputs_TE: Tensor, batch_sizes: Int64, kept_ND: Tensor) -> Tensor:
    """Return the N x d last states of a one-layer GRU whose state is multiplied where it enters the next step's gates.

    The state itself passes on whole, as in Keras (`recurrent_dropout`), whose GRU the authors of Hessel 2019 used.

    Args:
        gru: whose parameters are used.
        inputs_TE: inputs, laid out by `time_steps`.
        batch_sizes: sentences that are still there at each time step, falling.
        kept_ND: what the state of each sentence, by falling length, is multiplied with at every step.
    """
    input_weights, state_weights, input_bias, state_bias = gru.all_weights[0]
    of_inputs = F.linear(inputs_TE, input_weights, input_bias)
    state_ND = of_inputs.new_zeros(kept_ND.shape)
    ended: list[Tensor] = []
    sizes: list[int] = batch_sizes.tolist()
    for given, size in zip(torch.split(of_inputs, sizes), sizes, strict=True):
        ended.append(state_ND[size:])
        state_ND = state_ND[:size]
        of_state = F.linear(state_ND * kept_ND[:size], state_weights, state_bias)
        (reset, update, new), (reset_h, update_h, new_h) = given.chunk(3, dim=1), of_state.chunk(3, dim=1)
        fresh = torch.tanh(new + torch.sigmoid(reset + reset_h) * new_h)
        state_ND = torch.lerp(fresh, state_ND.to(fresh.dtype), torch.sigmoid(update + update_h))
    return torch.cat([state_ND, *reversed(ended)]).to(inputs_TE.dtype)


def time_steps(sentences: Ragged) -> tuple[Int64, Int64, Int64]:
    """Return (order, positions, batch sizes): sentences by falling length, words by time step, sentences per step.

    Positions are those of the words among all words, sentence by sentence.
    """
    lengths = sentences.counts
    order = np.argsort(-lengths, kind="stable")
    batch_sizes = np.searchsorted(-lengths[order], -np.arange(lengths.max()), side="left").astype(np.int64)
    steps = np.repeat(np.arange(lengths.max()), batch_sizes)
    places = np.arange(sentences.total) - np.repeat(np.cumsum(batch_sizes) - batch_sizes, batch_sizes)
    return order, sentences.offsets[order][places] + steps, batch_sizes


def word_places(order: Int64, batch_sizes: Int64) -> tuple[Int64, Int64]:
    """Return of each word laid out by `time_steps` the sentence it belongs to and its place there."""
    firsts = np.repeat(np.cumsum(batch_sizes) - batch_sizes, batch_sizes)
    return order[np.arange(len(firsts)) - firsts], np.repeat(np.arange(len(batch_sizes)), batch_sizes)
