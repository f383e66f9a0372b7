"""Runs a convolutional network over pictures, once for all the extractors that share it.

On a CPU one picture a forward pass, on one thread: its arithmetic is then the same whatever else is being extracted, so
its values are the same to the last bit, and a batch of one is as fast per picture as a batch of eight
(`benchmarks/features.py`). Throughput comes from several pictures under way in several threads or processes.

On a GPU pictures go through in batches of one fixed size, in half precision unless asked otherwise. Threads decode into
page-locked memory while the batch before is under way:

    threads   decode 0 | decode 1 | decode 2 | ...
    GPU                | batch 0  | batch 1  | ...

Vectors, class logits and places of a picture come from the same pass: extractors of one network in one process share a
trunk, and a picture that the last call of one of them looked at is not looked at again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import cached_property
from itertools import repeat

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from pipelines.features.architectures import ARCHITECTURES, Architecture, Network
from pipelines.features.devices import Place, place_of
from pipelines.features.values import Compute, Rejected
from pipelines.features.weights import WeightFile, digest_of, weight_of
from schemas.configs import resolve


class Part(StrEnum):
    """What can be had of one forward pass, for one picture: float32 arrays.

    VECTOR: d, the mean over places.     LOGITS: classes, of the vector.
    PLACES: h x w x d.                   PLACE_LOGITS: h x w x classes, of each place.
    """

    VECTOR = "vector"
    LOGITS = "logits"
    PLACES = "places"
    PLACE_LOGITS = "place-logits"


Seen = Mapping[Part, npt.NDArray[np.float32]]


class Trunk:
    """One network, its weights, and where it runs; loaded at the first use."""

    def __init__(self, architecture: Architecture, weights: WeightFile, compute: Compute) -> None:
        self.architecture = architecture
        self._weights = weights
        self._place = place_of(compute)
        self._batch = compute.batch
        self._wanted: set[Part] = set()
        self._users = 0
        self._last: dict[bytes, Seen | Rejected] = {}
        self._loading, self._turn = threading.Lock(), threading.Lock()
        self._loaded: Network | None = None
        # A thread's own setting: the caller's threads keep theirs.
        self._pool = ThreadPoolExecutor(
            compute.threads, architecture.name, initializer=torch.set_num_threads, initargs=(1,)
        )

    def want(self, *parts: Part) -> None:
        """Say what a user of this trunk needs of each picture, before its first one."""
        self._wanted.update(parts)
        self._users += 1

    def describe(self) -> dict[str, object]:
        """Return everything that what is seen depends on."""
        return {
            **self.architecture.describe(),
            **self._place.describe(),
            "weights": self._digest,
            "preprocessing": resolve(self.architecture.preprocessing),
        }

    @property
    def network(self) -> Network:
        """The loaded network."""
        with self._loading:
            if self._loaded is None:
                network = self.architecture.load(self._weights.path())
                network.module.to(self._place.device, self._place.dtype)
                self._loaded = network
            return self._loaded

    def look(self, pictures: Sequence[bytes]) -> list[Seen | Rejected]:
        """Return the wanted parts of each stored picture, in order; a picture that cannot be read is rejected."""
        if self._users < 2:
            return self._look(pictures)
        known = {picture: seen for picture, seen in self._last.items() if self._is_complete(seen)}
        missing = [picture for picture in dict.fromkeys(pictures) if picture not in known]
        known |= dict(zip(missing, self._look(missing), strict=True))
        self._last = {picture: known[picture] for picture in pictures}
        return [known[picture] for picture in pictures]

    def bare(self, pictures: Sequence[bytes]) -> Callable[[], object]:
        """Return the forward passes alone, over these pictures decoded beforehand: the bound of `look`."""
        squares = [self.architecture.preprocessing.square(picture) for picture in pictures]
        pixels = torch.from_numpy(np.stack([square for square in squares if not isinstance(square, Rejected)]))
        step = self._batch if self._place.is_gpu else 1
        batches = [self._values(pixels[begin : begin + step]) for begin in range(0, len(pixels), step)]
        network, wanted = self.network, frozenset(self._wanted)

        def run() -> None:
            for _ in self._pool.map(_forward, repeat(network), batches, repeat(wanted)):
                pass
            if self._place.is_gpu:
                torch.cuda.synchronize()

        return run

    def _is_complete(self, seen: Seen | Rejected) -> bool:
        return isinstance(seen, Rejected) or self._wanted <= seen.keys()

    def _look(self, pictures: Sequence[bytes]) -> list[Seen | Rejected]:
        network, wanted = self.network, frozenset(self._wanted)
        if self._place.is_gpu:
            with self._turn:  # the buffers are one caller's at a time
                return list(self._in_batches(pictures, network, wanted))
        return list(self._pool.map(self._one, pictures, repeat(network), repeat(wanted)))

    def _one(self, picture: bytes, network: Network, wanted: Set[Part]) -> Seen | Rejected:
        square = self.architecture.preprocessing.square(picture)
        if isinstance(square, Rejected):
            return square
        found = _forward(network, self._values(torch.from_numpy(square)[None]), wanted)
        return {part: tensor[0].numpy() for part, tensor in found.items()}

    def _in_batches(self, pictures: Sequence[bytes], network: Network, wanted: Set[Part]) -> Iterator[Seen | Rejected]:
        """Yield what is seen, one batch behind the decoding.

        Each pass is over a full buffer, whatever is in it: of one shape, so that a picture's company does not choose
        how the GPU computes.
        """
        under_way: _UnderWay | None = None
        for number, begin in enumerate(range(0, len(pictures), self._batch)):
            pixels = self._buffers[number % 2]
            rejected = list(self._pool.map(self._fill, pictures[begin : begin + self._batch], pixels.numpy()))
            started = _UnderWay(_forward(network, self._values(pixels), wanted), rejected, self._place)
            if under_way is not None:
                yield from under_way.finish()
            under_way = started
        if under_way is not None:
            yield from under_way.finish()

    def _fill(self, picture: bytes, pixels: npt.NDArray[np.uint8]) -> Rejected | None:
        square = self.architecture.preprocessing.square(picture)
        if isinstance(square, Rejected):
            pixels[:] = 0
            return square
        pixels[:] = square
        return None

    def _values(self, pixels: Tensor) -> Tensor:
        """Return N x H x W x 3 bytes as N x 3 x H x W values, channels last, on the network's device."""
        mean, deviation = self._scale
        rows = pixels.to(self._place.device, non_blocking=True).flatten(2).float()
        values = rows.sub_(mean).div_(deviation).to(self._place.dtype)
        return values.view(pixels.shape).permute(0, 3, 1, 2)

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of a whole row of pixels: a contiguous row is four times as fast as three channels."""
        preprocessing = self.architecture.preprocessing
        both = torch.tensor([preprocessing.mean, preprocessing.deviation], dtype=torch.float32)
        mean, deviation = both.tile(preprocessing.size_px).to(self._place.device)
        return mean, deviation

    @cached_property
    def _buffers(self) -> tuple[Tensor, Tensor]:
        """Two batches of pixels: one is filled while the other is on its way."""
        size = self.architecture.preprocessing.size_px
        shape = (self._batch, size, size, 3)
        first, second = (torch.zeros(shape, dtype=torch.uint8, pin_memory=self._place.is_gpu) for _ in range(2))
        return first, second

    @cached_property
    def _digest(self) -> str:
        return self._weights.sha256 or digest_of(self._weights.path())


class _UnderWay:
    """A batch on its way through a GPU: copies of what is found, complete once the event has happened."""

    def __init__(self, found: Mapping[Part, Tensor], rejected: Sequence[Rejected | None], place: Place) -> None:
        self._copies = {part: tensor.to("cpu", non_blocking=True) for part, tensor in found.items()}
        self._rejected = rejected
        self._event = torch.cuda.Event() if place.is_gpu else None  # type: ignore[no-untyped-call]
        if self._event is not None:
            self._event.record()

    def finish(self) -> Iterator[Seen | Rejected]:
        """Wait, and yield what is seen of each picture; its buffer may be filled again afterwards."""
        if self._event is not None:
            self._event.synchronize()
        arrays = {part: tensor.numpy() for part, tensor in self._copies.items()}
        for row, rejected in enumerate(self._rejected):
            yield rejected or {part: array[row] for part, array in arrays.items()}


def _forward(network: Network, values: Tensor, wanted: Set[Part]) -> dict[Part, Tensor]:
    """Return the wanted parts of N pictures, each N x ... in float32."""
    with torch.inference_mode():
        places = network.places(values)
        weight, bias = network.classifier.weight.float(), network.classifier.bias.float()
        found = {Part.VECTOR: places.mean((2, 3), dtype=torch.float32)}
        if Part.LOGITS in wanted:
            found[Part.LOGITS] = F.linear(found[Part.VECTOR], weight, bias)
        if wanted & {Part.PLACES, Part.PLACE_LOGITS}:
            found[Part.PLACES] = places.permute(0, 2, 3, 1).float().contiguous()
            found[Part.PLACE_LOGITS] = F.linear(found[Part.PLACES], weight, bias)
        return found


# The trunks that extractors of this process hold.
_TRUNKS: weakref.WeakValueDictionary[tuple[str, WeightFile, Compute], Trunk] = weakref.WeakValueDictionary()
_TRUNKS_LOCK = threading.Lock()


def trunk_of(name: str, *, compute: Compute, weights: Mapping[str, WeightFile]) -> Trunk:
    """Return this process's one trunk of an architecture, its weights and a way of computing.

    Raises:
        ConfigError: the weights are not given, and do not come with a package.
    """
    architecture = ARCHITECTURES[name]
    if name not in weights and architecture.packaged is not None:
        weight = WeightFile(name, str(architecture.packaged()))
    else:
        weight = weight_of(name, weights, what=f"a checkpoint of {name}")
    key = (name, weight, compute)
    with _TRUNKS_LOCK:
        trunk = _TRUNKS.get(key)
        if trunk is None:
            trunk = _TRUNKS[key] = Trunk(architecture, weight, compute)
        return trunk
