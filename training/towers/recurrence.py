"""Text towers that read sentences word by word, without work on padding.

gru                Hessel 2019, 3.1: over word vectors; the last state is the sentence
subword-gru        Liu 2020, table 1, line 1.8: likewise, over words with their n-grams
bilstm-attention   Alikhani 2022: a bidirectional LSTM, one vector of its states, batch norm, an affine map

Words are laid out over sentences of falling length, as in a `PackedSequence`:

    sentences  a b c | d e     time steps  a d | b e | c     batch sizes  2 2 1

On the CPU the recurrence of GRUs is the one below, with the same mathematics and parameters: a training step of
`hessel-2019` is 1.2 to 1.5 times as fast as with PyTorch's. GPUs and the LSTM use PyTorch's.
PyTorch sums the weights' gradient up step by step, one product of a few rows each. Here the recurrence keeps the gates,
the backward pass leaves the gradient of every step's gates in one array, and each weight's gradient is a single product
over all words. Whole time steps are contiguous, gates are computed in place, and a time step is one product each way.

Shape suffixes: T words of all sentences laid out by `time_steps`, N sentences
by falling length, E input and d state dimensions. Gates of a GRU are in PyTorch's order: reset r, update z, new n:

    r, z = sigmoid(W_rz x + U_rz h + b_rz)    n = tanh(W_n x + b_n + r (U_n h + c_n))    h' = n + z (h - n)

How the states `h_i` of e numbers of the LSTM become one vector (`pooling`):

    attention        mean weighted by softmax(u . W h_i / sqrt(e))
    tanh-attention   mean weighted by softmax(u . tanh(W h_i + b) / sqrt(e)), the authors' code
    last             the last state of either direction: the authors' code of -NoAttn
    mean             of all states
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from schemas.configs import Probability
from training.data.ragged import Int64, Ragged, to_device
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Packing, Sizes, Tower, mean_of, pool, softmax_pool, unit
from training.towers.words import SubwordRows, SubwordsSettings, SubwordTower, WordRows, WordsSettings, WordTower

PACK = "_reorder_linear_weight"


def sentence_states(
    gru: nn.GRU,
    dropout: nn.Dropout,
    sentences: Ragged,
    vectors_at: Callable[[Int64], Tensor],
    recurrent: nn.Dropout | None = None,
) -> Tensor:
    """Return the N x d last states of sentences, given what makes T x w vectors of the words at T positions."""
    device = next(gru.parameters()).device
    if not len(sentences):
        return torch.zeros((0, gru.hidden_size), device=device)
    order, positions, batch_sizes = time_steps(sentences)
    embedded = dropout(vectors_at(positions))
    if recurrent is not None and recurrent.training and recurrent.p > 0:
        ones_ND = torch.ones((len(order), gru.hidden_size), device=device)
        last_ND = dropped_states(gru, embedded, batch_sizes, recurrent(ones_ND))
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
    positions = np.arange(sentences.total) - np.repeat(np.cumsum(batch_sizes) - batch_sizes, batch_sizes)
    return order, sentences.offsets[order][positions] + steps, batch_sizes


def last_states(gru: nn.GRU, inputs_TE: Tensor, batch_sizes: Int64) -> Tensor:
    """Return the N x d last states of a one-layer GRU that starts from zero.

    Args:
        gru: whose parameters are used.
        inputs_TE: inputs, on the CPU.
        batch_sizes: sentences that are still there at each time step, falling.
    """
    precision = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else inputs_TE.dtype
    weights = gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0
    states: Tensor = _Recurrence.apply(inputs_TE, *weights, batch_sizes, precision)
    return states


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917
        ctx: Any,
        inputs_TE: Tensor,
        input_weights: Tensor,
        state_weights: Tensor,
        input_bias: Tensor,
        state_bias: Tensor,
        batch_sizes: Int64,
        precision: torch.dtype,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            size = state_weights.shape[1]
            x_TE, w, u = (values.to(precision) for values in (inputs_TE, input_weights, state_weights))
            bias = input_bias.clone()
            bias[: 2 * size] += state_bias[: 2 * size]
            bias, new_bias = bias.to(precision), state_bias[2 * size :].to(precision)
            inputs_T3d = torch.addmm(bias, x_TE, w.T)
            carried_Td, states_Td = x_TE.new_empty((2, len(x_TE), size)).unbind()
            _run((inputs_T3d, carried_Td, states_Td), u, new_bias, batch_sizes)
            ctx.save_for_backward(x_TE, w, u, inputs_T3d, carried_Td, states_Td)
            ctx.batch_sizes, ctx.types = batch_sizes, (inputs_TE.dtype, input_weights.dtype)
            return states_Td.index_select(0, torch.from_numpy(_last_rows(batch_sizes))).to(inputs_TE.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_Nd: Tensor) -> tuple[Tensor | None, ...]:
        x_TE, w, u, gates_T3d, carried_Td, states_Td = ctx.saved_tensors
        input_type, weight_type = ctx.types
        d_T3d, d_new_Td = torch.empty_like(gates_T3d), torch.empty_like(carried_Td)
        state_Nd = gradient_Nd.to(gates_T3d.dtype, copy=True)
        _run_back(state_Nd, (gates_T3d, carried_Td, states_Td), (d_T3d, d_new_Td), u, ctx.batch_sizes)
        gates = 2 * u.shape[1]
        first = int(ctx.batch_sizes[0])
        d_u = d_T3d[first:].T @ states_Td.index_select(0, torch.from_numpy(_rows_before(ctx.batch_sizes)))
        d_w = torch.empty_like(w)
        torch.mm(d_T3d[:, :gates].T, x_TE, out=d_w[:gates])
        torch.mm(d_new_Td.T, x_TE, out=d_w[gates:])
        d_state_bias = d_T3d.sum(dim=0, dtype=weight_type)
        d_input_bias = torch.cat([d_state_bias[:gates], d_new_Td.sum(dim=0, dtype=weight_type)])
        d_x_TE = None
        if ctx.needs_input_grad[0]:
            d_x_TE = torch.mm(d_T3d[:, :gates], w[:gates]).addmm_(d_new_Td, w[gates:]).to(input_type)
        return d_x_TE, d_w.to(weight_type), d_u.to(weight_type), d_input_bias, d_state_bias, None, None


def _run(kept: tuple[Tensor, Tensor, Tensor], u: Tensor, new_bias: Tensor, batch_sizes: Int64) -> None:
    """Turn the inputs' part of gates and new into their values, step by step; fill what is carried and the states.

    `kept` is gates and new (T x 3d), what is carried (`U_n h + c_n`) and the states (T x d each).
    """
    size = u.shape[1]
    product = _product_with(u.T)
    before: Tensor | None = None
    for start, stop in pairwise(Ragged.of(batch_sizes).offsets.tolist()):
        both, carried, state = (values[start:stop] for values in kept)
        gates, new = both[:, : 2 * size], both[:, 2 * size :]
        if before is None:
            carried.copy_(new_bias.expand_as(carried))
        else:
            before = before[: stop - start]
            from_state = product(before)
            gates += from_state[:, : 2 * size]
            torch.add(from_state[:, 2 * size :], new_bias, out=carried)
        gates.sigmoid_()
        reset, update = gates[:, :size], gates[:, size:]
        new.addcmul_(reset, carried).tanh_()
        if before is None:
            torch.addcmul(new, new, update, value=-1, out=state)
        else:
            torch.lerp(new, before, update, out=state)
        before = state


def _run_back(
    state_Nd: Tensor,
    kept: tuple[Tensor, Tensor, Tensor],
    wanted: tuple[Tensor, Tensor],
    u: Tensor,
    batch_sizes: Int64,
) -> None:
    """Fill the gradients of what the state adds to gates and new (T x 3d), and of new; `state_Nd` is used up.

    `kept` is gates and new (T x 3d), what is carried and the states (T x d each).
    """
    size = u.shape[1]
    product = _product_with(u)
    offsets = Ragged.of(batch_sizes).offsets.tolist()
    zeros = torch.zeros_like(state_Nd)
    for step in reversed(range(len(batch_sizes))):
        start, stop = offsets[step], offsets[step + 1]
        both, carried, _ = (values[start:stop] for values in kept)
        gates, (reset, update, new) = both[:, : 2 * size], both.chunk(3, dim=1)
        d_all, d_new = (values[start:stop] for values in wanted)
        d_reset, d_update, d_carried = d_all.chunk(3, dim=1)
        d_gates = d_all[:, : 2 * size]
        d_state = state_Nd[: stop - start]
        before = kept[2][offsets[step - 1] : offsets[step - 1] + stop - start] if step else zeros[: stop - start]
        torch.sub(before, new, out=d_update).mul_(d_state)
        torch.addcmul(d_state, d_state, update, value=-1, out=d_new)
        d_new.addcmul_(d_new, new.square(), value=-1)
        torch.mul(d_new, carried, out=d_reset)
        torch.mul(d_new, reset, out=d_carried)
        d_gates.mul_(gates).addcmul_(d_gates, gates, value=-1)
        if step:
            d_state.mul_(update).add_(product(d_all))


def _product_with(weights: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what multiplies rows with `weights`; float32 is laid out once for all time steps where oneDNN can.

    A plain product lays float32 weights out again each time, which costs more than the few rows of a late time step.
    """
    if weights.dtype is torch.float32 and hasattr(torch.ops.mkldnn, PACK):  # there only where oneDNN is built in
        packed = torch.ops.mkldnn._reorder_linear_weight(weights.T.contiguous(), None)
        return lambda rows: torch.ops.mkldnn._linear_pointwise(rows, packed, None, "none", [], "")
    return lambda rows: rows @ weights


def _last_rows(batch_sizes: Int64) -> Int64:
    """Return for each sentence the row of its last word."""
    lengths = np.searchsorted(-batch_sizes, -np.arange(int(batch_sizes[0])), side="left")
    rows: Int64 = Ragged.of(batch_sizes).offsets[lengths - 1] + np.arange(int(batch_sizes[0]))
    return rows


def _rows_before(batch_sizes: Int64) -> Int64:
    """Return for each word but the first words of sentences the row of the word before it."""
    steps = np.repeat(np.arange(1, len(batch_sizes)), batch_sizes[1:])
    return np.arange(int(batch_sizes[0]), int(batch_sizes.sum())) - batch_sizes[steps - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class GruSettings(WordsSettings):
    """H 3.1: a GRU over word vectors, its last state.

    Attributes:
        recurrent_dropout: probability that a number of the state is dropped where it enters the next step, the same
            numbers at all steps of a sentence (H's code: 0.4, with `text.dropout=0`); the paper names one dropout.
    """

    name: str = "gru"
    recurrent_dropout: Probability = 0.0

    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        return GruTower(self, sizes, vocabulary)


class GruTower(WordTower):
    """N sentences -> N x `dimensions` unit vectors; the hidden state has as many numbers."""

    def __init__(self, config: GruSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        self.gru = nn.GRU(config.word_dimensions, sizes.dimensions)
        self.recurrent_dropout = nn.Dropout(config.recurrent_dropout)

    def forward(self, rows: WordRows) -> Tensor:
        vectors_at = partial(self.vectors_at, rows)
        return unit(sentence_states(self.gru, self.dropout, rows.sentences, vectors_at, self.recurrent_dropout))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubwordGruSettings(SubwordsSettings):
    """N table 1, line 1.8: a GRU over words with their n-grams."""

    name: str = "subword-gru"

    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        return SubwordGruTower(self, sizes, vocabulary)


class SubwordGruTower(SubwordTower):
    """N sentences -> N x `dimensions` unit vectors; the hidden state has as many numbers."""

    def __init__(self, config: SubwordGruSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        self.gru = nn.GRU(config.word_dimensions, sizes.dimensions)

    def forward(self, rows: SubwordRows) -> Tensor:
        return unit(sentence_states(self.gru, self.dropout, rows.sentences, partial(self.embedding, rows)))


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
        states_TE = states.data.index_select(0, to_device(state_positions(packing, order, batch_sizes), device))
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
    return (np.cumsum(batch_sizes) - batch_sizes)[packing.steps] + np.repeat(rank[packing.order], lengths)
