"""Text tower of Hessel 2019 (3.1): word vectors, GRU, last hidden state, L2 norm.

Words are laid out time step by time step over sentences of falling length (a `PackedSequence` built directly), so
neither the embedding nor the recurrence does any work on padding:

    sentences  a b c | d e     time steps  a d | b e | c     batch sizes  2 2 1
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from training.config import GruConfig
from training.data.ragged import Int64
from training.host_arrays import to_device
from training.text.vocabulary import Vocabulary
from training.towers.dropout import RowDropout
from training.towers.inputs import Sizes, TrainingPass, unit
from training.towers.recurrence import last_states
from training.towers.words import WordRows, WordTower


class GruTower(WordTower):
    """N sentences -> N x `dimensions` unit vectors; the hidden state has as many numbers."""

    def __init__(self, config: GruConfig, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.dropout = RowDropout(config.dropout)
        self.gru = nn.GRU(config.word_dimensions, sizes.dimensions)

    def forward(self, rows: WordRows, training_pass: TrainingPass | None = None) -> Tensor:
        device = self.embedding.weight.device
        if not len(rows):
            return torch.zeros((0, self.gru.hidden_size), device=device)
        order, words, batch_sizes = pack(rows)
        sentences, steps = (to_device(places, device) for places in word_places(order, batch_sizes))
        embedded = self.dropout(self.embedding(to_device(words, device)), sentences, steps)
        if device.type == "cpu":
            last_ND = last_states(self.gru, embedded, batch_sizes)
        else:
            last_ND = self.gru(PackedSequence(embedded, torch.from_numpy(batch_sizes)))[1][0]
        restore = to_device(np.argsort(order), device)
        return unit(last_ND.index_select(0, restore))


def pack(rows: WordRows) -> tuple[Int64, Int64, Int64]:
    """Return (order, words, batch sizes): sentences by falling length, their words by time step, sentences per step."""
    lengths = rows.sentences.counts
    order = np.argsort(-lengths, kind="stable")
    batch_sizes = np.searchsorted(-lengths[order], -np.arange(lengths.max()), side="left").astype(np.int64)
    steps = np.repeat(np.arange(lengths.max()), batch_sizes)
    places = np.arange(len(rows.words)) - np.repeat(np.cumsum(batch_sizes) - batch_sizes, batch_sizes)
    return order, rows.words[rows.sentences.offsets[order][places] + steps].astype(np.int64), batch_sizes


def word_places(order: Int64, batch_sizes: Int64) -> tuple[Int64, Int64]:
    """Return of each word laid out by `pack` the sentence it belongs to and its place there."""
    firsts = np.repeat(np.cumsum(batch_sizes) - batch_sizes, batch_sizes)
    return order[np.arange(len(firsts)) - firsts], np.repeat(np.arange(len(batch_sizes)), batch_sizes)
