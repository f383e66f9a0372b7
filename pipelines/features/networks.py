"""The columns that one pass of a convolutional network gives (`architectures` says which).

What runs is the graph that `convert` makes of a checkpoint. It is made where it is first needed. A lake keeps the
graphs of its builds, so that workers need neither the checkpoint nor PyTorch, and a later version of PyTorch changes no
column.
"""

import io
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pkgutil import resolve_name

import numpy as np

from pipelines.features.catalogue import Entry, Extractor, extractors, module_of
from pipelines.features.pixels import (
    GPU_BATCH,
    Architecture,
    Arrays,
    Graph,
    Output,
    PictureExtractor,
    Pixels,
    Square,
    fixed_pixels,
)
from pipelines.features.values import DOCUMENTS, Classes, Float32, Regions, Row, Value, feature_column, kept_regions
from pipelines.features.weights import WeightFile, graph_stem, kept_in, machine_cache, make_once, weight_of
from pipelines.settings import FeaturesConfig
from schemas.configs import resolve
from schemas.features import NAMES_ENCODER, FeatureColumn, FeatureKind
from schemas.lake import Folder
from schemas.versions import fingerprint

NAMES_DIMENSIONS = 512
TOP = 20  # classes of a picture (Hessel 2019, 3.3: K in 1..20)


def entries_of(architecture: Architecture) -> dict[str, Entry]:
    """Return the catalogue's entries of a network's columns, by name."""
    return {
        name: Entry(factory=partial(Network, architecture), network=architecture.name) for name in architecture.outputs
    }


@dataclass
class ClassNames:
    """What a picture's classes are called, as a vector in the space of sentences: no pairs are needed.

    Each class name is encoded as a sentence. A picture's vector is the sum of the names of its most probable classes,
    each less the mean of all names, times the root of its probability; of length 1. Norouzi et al. 2014 (ConSE) weight
    by the probability itself and do not centre: both were chosen by ranks (`benchmarks/learning.py`).

    Attributes:
        names: C of them, in the order of the network's outputs.
        config: of the features.
    """

    names: Sequence[str]
    config: FeaturesConfig

    @cached_property
    def identity(self) -> str:
        """Return the SHA-256 (hex) of what the vectors of names follow from."""
        names, encoder = list(self.names), self._encoder.columns[0].fingerprint
        return fingerprint({"names": names, "encoder": encoder, "value": "roots of 20 probabilities, centred names"})

    def vector(self, probabilities: Float32) -> Float32:
        """Return the vector of a picture with C probabilities."""
        order = np.argsort(-probabilities, kind="stable")[:TOP]
        found = np.sqrt(probabilities[order]).astype(np.float64) @ self._centred[order].astype(np.float64)
        length = np.linalg.norm(found)
        return (found / length if length else found).astype(np.float32)

    @cached_property
    def _encoder(self) -> Extractor:
        return extractors([NAMES_ENCODER], DOCUMENTS, self.config)[0]

    @cached_property
    def _centred(self) -> Float32:
        """C x 512: the names' vectors less their mean, kept on this machine; a thousand take seconds."""
        name = f"class-names-{self.identity[:16]}.npy"
        found: Float32 = np.load(io.BytesIO(make_once(name, self._made).read(name)))
        return found

    def _made(self) -> bytes:
        vectors, buffer = np.asarray(self._encoder.extract([list(self.names)])[0][0]), io.BytesIO()
        np.save(buffer, vectors - vectors.mean(axis=0))
        return buffer.getvalue()


class Network(PictureExtractor):
    """Extractor of one or several columns of pictures."""

    def __init__(
        self,
        architecture: Architecture,
        network: str,
        names: Sequence[str],
        config: FeaturesConfig,
        weights: Mapping[str, WeightFile],
    ) -> None:
        """Make the extractor of some columns of a network; another name than those of its columns is its grid's.

        Raises:
            ConfigError: the weights are not given, and do not come with a package.
        """
        super().__init__(config, architecture.preprocessing)
        self.architecture, self.network = architecture, network
        self.outputs = {name: architecture.outputs.get(name, Output.GRID) for name in names}
        if network not in weights and architecture.packaged:
            weights = {network: WeightFile(network, resolve_name(architecture.packaged)())}
        self.weight = weight_of(network, weights, what=f"a checkpoint of {network}")

    def graphs_in(self, folder: Folder) -> dict[str, WeightFile]:
        """Return the graph by the network's name (see `graph_in`)."""
        return {self.network: self.graph_in(folder)}

    def graph_in(self, folder: Folder) -> WeightFile:
        """Return the graph as weights: those that are named, or made of the checkpoint and kept in a folder.

        Raises:
            ConfigError: the file is no checkpoint of this architecture.
        """
        if self.weight.is_graph:
            return self.weight
        name = f"{graph_stem(self.network, module_of(self.network), self.weight.digest)}.onnx"
        return kept_in(folder, self.network, name, lambda: make_once(name, self._made).read(name))

    def _made(self) -> bytes:
        """Return the graph of the checkpoint."""
        from pipelines.features.convert import graph_of, quantised

        graph = graph_of(self.architecture, self.weight.local().path)
        return quantised(graph, self.architecture.preprocessing) if self.architecture.is_quantised else graph

    @cached_property
    def graph(self) -> Graph:
        """The network that runs."""
        return Graph(self.network, self.graph_in(machine_cache("networks")).local(), self.config)

    @cached_property
    def columns(self) -> tuple[FeatureColumn, ...]:
        self.batch = GPU_BATCH if self.graph.is_gpu else 1
        found = self._run(self.preprocessing.values(fixed_pixels(self.preprocessing.size_px)), list(Output))
        identity = {"preprocessing": resolve(self.preprocessing), **self.graph.identity([*found.values()])}
        lengths = {
            Output.CLASSES: 0,
            Output.GRID: self.architecture.dimensions,
            Output.NAMES: NAMES_DIMENSIONS,
        }
        return tuple(
            feature_column(
                name,
                self.config,
                lengths[output] if output in lengths else found[output].shape[1],
                {"value": output, **identity} | ({"names": self.names.identity} if output is Output.NAMES else {}),
                output.kind,
            )
            for name, output in self.outputs.items()
        )

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """ImageNet's 1,000 class names in the order of the network's outputs."""
        return tuple(json.loads(self.graph.session.get_modelmeta().custom_metadata_map["classes"]))

    @cached_property
    def names(self) -> ClassNames:
        """These names as vectors."""
        return ClassNames(self.classes, self.config)

    def rows(self, squares: Sequence[Square], pixels: Pixels) -> list[Row]:
        """Return the columns' values of squares, which are the first of N x H x W x 3 pixels."""
        wanted = [*self.outputs.values()]
        arrays = self._run(self.preprocessing.values(pixels), wanted)
        return [
            tuple(self._value(output, arrays, row, square) for output in wanted) for row, square in enumerate(squares)
        ]

    def _run(self, values: Float32, wanted: Collection[Output]) -> dict[str, Float32]:
        """Return what outputs are made of, for N x 3 x H x W values."""
        shapes = {each.name: each.shape for each in self.graph.session.get_outputs()}
        cells = len(values) * shapes["cells"][1] * shapes["cells"][2]
        of_vectors, of_cells = (
            len(values) * bool({Output.CLASSES, Output.NAMES} & {*wanted}),
            cells * (Output.GRID in wanted),
        )
        given: Arrays = {"values": values, "of_vectors": np.arange(of_vectors), "of_cells": np.arange(of_cells)}
        arrays = dict(zip(shapes, self.graph.run(given, list(shapes)), strict=True))
        if Output.MIRRORED in wanted:
            mirrored = self._run(np.ascontiguousarray(values[..., ::-1]), ())
            arrays["mirrored"] = (arrays["vector"] + mirrored["vector"]) / 2
        return arrays

    def _value(self, output: Output, arrays: Mapping[str, Float32], row: int, square: Square) -> Value:
        if output is Output.NAMES:
            return self.names.vector(arrays["probabilities"][row])
        if output.kind is FeatureKind.VECTOR:
            vector: Float32 = arrays[output][row]
            return vector
        if output is Output.CLASSES:
            return top_classes(arrays["probabilities"][row], self.classes)
        # The classifier is linear in the mean over cells, so that applied to one cell it says what that cell adds
        # (Zhou et al. 2016, eq. 2). A box is the cell's part of the square, not the larger field that the cell sees.
        cells = arrays["cells"][row]
        height, width, _ = cells.shape
        probabilities = arrays["cell_probabilities"].reshape(-1, height * width, len(self.classes))[row]
        scores = probabilities.max(axis=1)
        kept = kept_regions(scores, self.config)
        return Regions(
            boxes=cell_boxes(height, width, square.box)[kept],
            labels=tuple(self.classes[number] for number in probabilities.argmax(axis=1)[kept]),
            scores=scores[kept],
            vectors=cells.reshape(height * width, -1)[kept],
        )


def cell_boxes(height: int, width: int, box: tuple[float, float, float, float]) -> Float32:
    """Return the boxes of a grid's cells, row by row, where the grid covers `box` of the picture."""
    left, top, right, bottom = box
    across, down = np.linspace(left, right, width + 1), np.linspace(top, bottom, height + 1)
    row, column = (index.reshape(-1) for index in np.indices((height, width)))
    return np.stack([across[column], down[row], across[column + 1], down[row + 1]], axis=1).astype(np.float32)


def top_classes(probabilities: Float32, names: Sequence[str]) -> Classes:
    """Return the `TOP` most probable classes, equal ones in the order of their numbers."""
    order = np.argsort(-probabilities, kind="stable")[:TOP]
    return Classes(tuple(names[number] for number in order), probabilities[order])
