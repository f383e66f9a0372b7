"""Two affine maps without gradients: directions of sentences and of images that go together in documents, by turns.

    P_d  <- how much of each sentence of document d goes to each of its images: at the start of a path the soft plan of
            their cosines with class names over their deviation, or all alike where there are no class names; later the
            soft plan of the maps' cosines, times a sharpness that rises from pass to pass
    C    =  sum over documents of X_d^T P_d V_d, each document's plan of weight 1
    U, S, V = SVD of Wx C Wv, where W is the inverse root of a covariance with a regularisation that falls
    maps <- Wx U g and Wv V g with g = sqrt(S / S[0])

A pass reads every document once and adds up one small matrix: numbers of every shard, summed in one order whatever the
number of workers. Shards are put into at most `GROUPS` groups of shards that follow one another; a group is one
worker's. The workers' sums are gathered after each of their groups, and every worker adds them up in the order of the
groups: the result has the same bits for any number of workers (each computes in one thread: `training.loop.trainer`).
What a pass needs of those before is in the maps alone, so that a run resumes from its model; the sums of the vectors
themselves are made once a process. Inputs are in the basis of their covariance, in which W is diagonal.

Shape suffixes: N sentences, M images, V numbers of a vector, K of a whitened one, D of the joint space, B
documents, n and m sentences and images of the largest.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from training.closed_form.plans import BINS, FOLDS, Order, bins_of, masses, pair_weights, relative_places
from training.data.documents import DocumentSet, Vectors
from training.data.loading import NamedColumns
from training.data.ragged import Float32, Float64, Int64, Ragged, to_device
from training.data.split import TrainingSplit
from training.similarity.similarity import padding
from training.towers.inputs import Tower, VectorRows, Workers, add_of_workers, unit
from training.towers.whitening import SMALLEST, Column, Whitening, shared_whitening, sums_of

GROUPS = 256  # more workers than that have nothing to do
PAIRS_AT_ONCE = 1 << 20
ROWS_AT_ONCE = 8192
Watch = Callable[[int], None]
CONTENT_PASSES = 3  # of a path, by content alone; the last of them shows in which order partners stand


@dataclass(frozen=True, slots=True, kw_only=True)
class Sets:
    """Vectors of the sentences and images of some documents.

    Attributes:
        sentences: which of the N rows are of which document.
        images: which of the M rows are of which document.
        texts: N x v of the sentences.
        places: M x v of the images, one a place.
        where: N places of the sentences, M of the images, 0 to 1 (`order`).
        folds: of the B documents.
    """

    sentences: Ragged
    images: Ragged
    texts: Float32
    places: Float32
    where: tuple[Float64, Float64]
    folds: Int64


def summed(split: TrainingSplit, workers: Workers, of_documents: Callable[[Sets], Tensor], like: Tensor) -> Tensor:
    """Return the sum of a tensor over all documents of a split that have a sentence and an image.

    Args:
        split: is read once.
        workers: share the work.
        of_documents: gives the tensor of some documents, on the device of `like`.
        like: zeros of the sum's shape, float64.
    """
    groups = np.array_split(np.arange(len(split.index.shards)), min(GROUPS, len(split.index.shards)))
    total = like.clone()
    for first in range(0, len(groups), workers.world_size):
        own = like.clone()
        number = first + workers.rank
        for shard in groups[number] if number < len(groups) else ():
            for sets in _batches(split.shard(int(shard))):
                own += of_documents(sets)
        add_of_workers(total, own, workers, count=len(groups) - first)
    return total


def _batches(documents: DocumentSet) -> Iterator[Sets]:
    """Yield documents of about one size together, so that not much of their padded pairs is padding."""
    known, where = sentence_vectors(documents), relative_places(documents)
    n, m = documents.sentences.counts, documents.images.counts
    usable = np.flatnonzero((n > 0) & (m > 0))
    usable = usable[np.lexsort((m[usable], n[usable]))]
    for places in _cut(n[usable], m[usable]):
        rows = usable[places]
        text_places, image_places = documents.sentences.positions(rows), documents.images.positions(rows)
        yield Sets(
            sentences=documents.sentences.take(rows),
            images=documents.images.take(rows),
            texts=np.asarray(known[text_places], np.float32),
            places=np.asarray(documents.image_bank[documents.image_rows[image_places]], np.float32),
            where=(where[0][text_places], where[1][image_places]),
            folds=rows % FOLDS,
        )


def _cut(n: Int64, m: Int64) -> Iterator[Int64]:
    """Yield places of documents, by rising n, few enough that padded pairs and rows are limited; at least one."""
    first = 0
    while first < len(n):
        count, rest = np.arange(1, len(n) - first + 1), slice(first, None)
        widest = np.maximum.accumulate(m[rest])
        is_small = (count * n[rest] * widest <= PAIRS_AT_ONCE) & (np.cumsum(n[rest] + m[rest]) <= ROWS_AT_ONCE)
        taken = max(1, int(np.argmin(is_small)) if not is_small.all() else len(is_small))
        yield np.arange(first, first + taken)
        first += taken


def sentence_vectors(documents: DocumentSet) -> Vectors:
    """Return N x v vectors of documents whose sentence vectors were read."""
    if documents.sentence_vectors is None:
        raise ValueError("the documents' sentence vectors were not read")
    return documents.sentence_vectors


def on(values: Float32, workers: Workers) -> Tensor:
    """Return values on the workers' device."""
    return torch.from_numpy(values).to(workers.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What a pass over the data is made with.

    Attributes:
        regularisation: what is added to covariances, in mean eigenvalues.
        sharpness: what cosines are multiplied with before the plan; None: the path starts.
        number: of the pass in its path, from 0.
    """

    regularisation: float
    sharpness: float | None
    number: int = 0


@dataclass(slots=True, kw_only=True)
class Solver:
    """Solves for the maps of two towers.

    Attributes:
        text: an affine map of sentence vectors.
        image: an affine map of image vectors.
        split: training documents.
        workers: share the work.
        columns: parts of the sentence vectors, and of the image vectors.
        named: where sentences and class names stand in them, as vectors of one space; None where they do not.
        pass_of: gives what an epoch (from 1) is made with.
        order: kept with the model; learnt in the last pass of a path that goes by content alone, and read in those
            after it. None: places do not count.
    """

    text: Tower
    image: Tower
    split: TrainingSplit
    workers: Workers
    columns: tuple[Sequence[Column], Sequence[Column]]
    named: NamedColumns | None
    pass_of: Callable[[int], Pass]
    order: Order | None = None
    _inputs: tuple[Whitening, Whitening] | None = field(default=None, init=False)
    _names_sharpness: float = field(default=1.0, init=False)

    def take(self, epoch: int, watch: Watch) -> dict[str, float]:
        """Take one pass and set the towers' maps; return its loss, regularisation and sharpness.

        The loss is that of the maps before the pass: the mean over documents of minus the weighted cosine of its pairs.
        """
        step = self.pass_of(epoch)
        self.text.eval()
        self.image.eval()
        texts, images = self.inputs
        sizes = (texts.components.shape[1], images.components.shape[1])

        def of_documents(sets: Sets) -> Tensor:
            watch(len(sets.sentences))
            return self._products(sets, step)

        counts = [2, sizes[0] * sizes[1], 0 if self.order is None else FOLDS * 2 * BINS]
        like = torch.zeros(sum(counts), dtype=torch.float64, device=self.workers.device)
        total, products, places = torch.split(summed(self.split, self.workers, of_documents, like), counts)
        self._solve(products.view(sizes), step.regularisation)
        if self.order is not None and step.number == CONTENT_PASSES - 1:
            self.order.learn(places.view(FOLDS, 2, BINS))
        metrics = {"train_loss": -float(total[1] / total[0]), "regularisation": step.regularisation}
        return metrics if step.sharpness is None else metrics | {"sharpness": step.sharpness}

    @property
    def inputs(self) -> tuple[Whitening, Whitening]:
        """Return the inputs of sentences and of images, from a pass of their own the first time."""
        if self._inputs is None:
            sizes = [1 + sum(column.size for column in columns) for columns in self.columns]
            counts = [*(size**2 for size in sizes), 3]
            like = torch.zeros(sum(counts), dtype=torch.float64, device=self.workers.device)
            *sums, of_names = torch.split(summed(self.split, self.workers, self._moments, like), counts)
            text, image = (
                shared_whitening(each.view(size, size), columns, self.workers, what=what).uncorrelated(self.workers)
                for each, size, columns, what in zip(sums, sizes, self.columns, ("sentences", "images"), strict=True)
            )
            self._inputs = (text, image)
            count, total, squares = of_names.tolist()
            variance = squares / max(count, 1.0) - (total / max(count, 1.0)) ** 2
            self._names_sharpness = max(variance, SMALLEST) ** -0.5
        return self._inputs

    def _moments(self, sets: Sets) -> Tensor:
        both = (sums_of(on(rows, self.workers)) for rows in (sets.texts, sets.places))
        names = torch.zeros(3, dtype=torch.float64, device=self.workers.device)
        if self.named is not None:
            texts, images = (_counted(each, self.workers.device) for each in (sets.sentences, sets.images))
            names_Bnm = torch.where(texts[:, :, None] & images[:, None, :], self._names(sets).double(), 0.0)
            pairs = torch.as_tensor(int(sets.sentences.counts @ sets.images.counts), device=names.device)
            names = torch.stack([pairs.double(), names_Bnm.sum(), names_Bnm.square().sum()])
        return torch.cat([*(sums.flatten() for sums in both), names])

    def _bins(self, sets: Sets) -> Tensor:
        """Return B x n x m bins of pairs; beyond a document's size they mean nothing."""
        device = self.workers.device
        text_places, image_places = (torch.from_numpy(each).to(device) for each in sets.where)
        return bins_of(text_places[padding(sets.sentences, device)[0]], image_places[padding(sets.images, device)[0]])

    def _names(self, sets: Sets) -> Tensor:
        """Return B x n x m cosines of sentences with class names; beyond a document's size they mean nothing."""
        if self.named is None:
            raise ValueError("class names were not read")
        of_texts, of_images = self.named
        texts = unit(on(sets.texts[:, of_texts], self.workers))
        images = torch.stack([unit(on(sets.places[:, part], self.workers)) for part in of_images])
        return _blocks(texts, images.mean(dim=0), sets)

    def _products(self, sets: Sets, step: Pass) -> Tensor:
        """Return the number of documents, their weighted cosines, K x K of `x_s^T P_si v_i`, and what bins get."""
        with torch.inference_mode():
            text_ND, image_MD = self.text(VectorRows(sets.texts)), self.image(VectorRows(sets.places))
        cosines_Bnm = _blocks(text_ND, image_MD, sets)
        scores_Bnm, sharpness = cosines_Bnm, step.sharpness
        if sharpness is None and self.named is not None:
            scores_Bnm, sharpness = self._names(sets), self._names_sharpness
        bins_Bnm = None if self.order is None else self._bins(sets)
        if self.order is not None and sharpness is not None and step.number >= CONTENT_PASSES:
            scores_Bnm = scores_Bnm + self.order.log_weights.to(scores_Bnm)[bins_Bnm] / sharpness
        weights_Bnm = pair_weights(scores_Bnm, sets.sentences, sets.images, sharpness)
        texts, images = self.inputs
        x_NK, v_MK = texts.of(on(sets.texts, self.workers)), images.of(on(sets.places, self.workers))
        partners_BnK = weights_Bnm @ v_MK[padding(sets.images, v_MK.device)[0]]
        product_KK = x_NK.T @ partners_BnK[_counted(sets.sentences, x_NK.device)]
        totals = torch.stack([x_NK.new_tensor(len(sets.sentences)), (weights_Bnm * cosines_Bnm).sum()])
        sums = torch.cat([totals, product_KK.flatten()]).double()
        if bins_Bnm is None:
            return sums
        places = masses(weights_Bnm, bins_Bnm, sets.sentences, sets.images, torch.from_numpy(sets.folds))
        return torch.cat([sums, places.flatten()])

    def _solve(self, product_KK: Tensor, regularisation: float) -> None:
        """Set the maps of both towers from the sum of the documents' products."""
        texts, images = self.inputs
        roots = [inverse_root(each.covariance.diagonal(), regularisation) for each in (texts, images)]
        u, s, vt = torch.linalg.svd(roots[0][:, None] * product_KK * roots[1], full_matrices=False)
        strength = (s / s[0].clamp(min=torch.finfo(s.dtype).tiny)).sqrt()
        for tower, inputs, root, sides in zip((self.text, self.image), (texts, images), roots, (u, vt.T), strict=True):
            weights_VD = self.workers.of_first(inputs.components @ (root[:, None] * sides * strength))
            tower.set_map(weights_VD.T, -(inputs.mean @ weights_VD))


def _blocks(text_ND: Tensor, image_MD: Tensor, sets: Sets) -> Tensor:
    """Return B x n x m products of each document's sentences and images; beyond its size they mean nothing."""
    (texts, _), (images, _) = padding(sets.sentences, text_ND.device), padding(sets.images, image_MD.device)
    return text_ND[texts] @ image_MD[images].transpose(1, 2)


def _counted(segments: Ragged, device: torch.device) -> Tensor:
    """Return C x L, whether a place of each segment is a member's, bool."""
    counts = to_device(segments.counts, device)
    return torch.arange(int(segments.counts.max()), device=device)[None, :] < counts[:, None]


def inverse_root(variances_K: Tensor, regularisation: float) -> Tensor:
    """Return the diagonal of `(C + r * e * I)^(-1/2)`, where `e` is the mean of a diagonal covariance `C`."""
    root_K: Tensor = (variances_K + regularisation * variances_K.mean()).rsqrt()
    return root_K
