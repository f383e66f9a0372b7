"""Text tower of Alikhani 2022: word vectors, bidirectional LSTM, one vector of its states, batch norm, affine map.

How the states `h_i` of e numbers become one vector (`pooling`):

    attention        mean weighted by softmax(u . W h_i / sqrt(e))
    tanh-attention   mean weighted by softmax(u . tanh(W h_i + b) / sqrt(e)), the authors' code
    last             the last state of either direction: the authors' code of -NoAttn
    mean             of all states

Words are laid out as in `training.towers.recurrence`, so no work is done on padding.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from training.data.ragged import Int64, to_device
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, Tower, unit
from training.towers.packing import Packing, mean_of, pool, softmax_pool
from training.towers.recurrence import time_steps
from training.towers.words import WordRows, WordsSettings, WordTower


@dataclass(frozen=True, slots=True, kw_only=True)
class BilstmAttentionSettings(WordsSettings):
    """A: bidirectional LSTM, attention over its states.

    Attributes:
        pooling: how states become one vector: `attention` (a linear score a state) or `tanh-attention` (the authors'
            code: `u . tanh(W h + b) / sqrt(e)`); without attention (A table 3) `last` (the last state of either
            direction, as in the code) or `mean`.
    """

    name: str = "bilstm-attention"
    pooling: Literal["attention", "tanh-attention", "last", "mean"] = "attention"

    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        return BilstmAttentionTower(self, sizes, vocabulary)


class BilstmAttentionTower(WordTower):
    """N sentences -> N x `dimensions` unit vectors; each direction's state has as many numbers as a word vector."""

    def __init__(self, config: BilstmAttentionSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        states = 2 * config.word_dimensions
        self.pooling = config.pooling
        self.dropout = nn.Dropout(config.dropout)
        self.lstm = nn.LSTM(config.word_dimensions, config.word_dimensions, bidirectional=True)
        is_weighted = config.pooling in ("attention", "tanh-attention")
        self.key = nn.Linear(states, states, bias=config.pooling == "tanh-attention") if is_weighted else None
        self.query = nn.Linear(states, 1, bias=False) if is_weighted else None
        self.norm = nn.BatchNorm1d(states)
        self.affine = nn.Linear(states, sizes.dimensions)

    def forward(self, rows: WordRows) -> Tensor:
        sentences = self._read(rows) if len(rows) else self.affine.weight.new_zeros((0, self.affine.in_features))
        return unit(self.affine(self.norm(sentences.float())))

    def _read(self, rows: WordRows) -> Tensor:
        device = self.embedding.weight.device
        order, words, batch_sizes = time_steps(rows.sentences)
        embedded = self.dropout(self.vectors_at(rows, words))
        states, (last_2NW, _) = self.lstm(PackedSequence(embedded, torch.from_numpy(batch_sizes)))
        if self.pooling == "last":
            return torch.cat(list(last_2NW), dim=1).index_select(0, to_device(np.argsort(order), device))
        packing = Packing.of(rows.sentences)
        positions = to_device(state_positions(packing, order, batch_sizes), device)
        states_TE = states.data.index_select(0, positions)
        if self.query is None or self.key is None:
            return pool(states_TE, packing, mean_of)
        keys_TE = self.key(states_TE)
        scores_T1 = self.query(keys_TE.tanh() if self.pooling == "tanh-attention" else keys_TE)
        return softmax_pool(states_TE, scores_T1 / states_TE.shape[1] ** 0.5, packing)


def state_positions(packing: Packing, order: Int64, batch_sizes: Int64) -> Int64:
    """Return where each packed token's state is among states laid out time step by time step.

    Args:
        packing: of the rows.
        order: of the rows in the layout by time step (falling length).
        batch_sizes: rows in each time step.
    """
    rank = np.argsort(order)
    lengths = np.concatenate([np.zeros(0, np.int64), *(np.full(count, size) for count, size in packing.groups)])
    starts = np.cumsum(batch_sizes) - batch_sizes
    return starts[packing.steps] + np.repeat(rank[packing.order], lengths)
