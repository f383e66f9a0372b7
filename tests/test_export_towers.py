"""A small pair of towers, exported by the example: columns, a model without training, and a baseline of reports."""

import io
import runpy
import sys
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from builds import build
from PIL import Image
from ten_documents import write_ten

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.overrides import override
from training.data.lake import Columns, read_split
from training.data.ragged import unit_rows
from training.evaluation.baselines import Baseline, evaluate_baseline
from training.evaluation.evaluate import EvaluateConfig
from training.evaluation.models import evaluate_model
from training.model import LinkModel
from training.recipes import recipe

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "export_towers.py"
WORDS = ["<pad>", "<start>", "<end>", "<unk>", "Step", "of", "project", "The", "end", ".", *map(str, range(10))]
SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PICTURES: dict[str, Any] = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.25, 0.3], "resample": 2}


def clip() -> tuple[Any, Any]:
    text = SMALL | {"vocab_size": len(WORDS), "max_position_embeddings": 12} | TOKENS
    config = transformers.CLIPConfig(
        text_config=text, vision_config=SMALL | {"image_size": 64, "patch_size": 16}, projection_dim=24
    )
    size = {"size": {"shortest_edge": 80}, "crop_size": {"height": 64, "width": 64}}
    return transformers.CLIPModel(config), transformers.CLIPImageProcessor(**PICTURES, **size)


def siglip() -> tuple[Any, Any]:
    text = SMALL | {"vocab_size": len(WORDS), "max_position_embeddings": 12} | TOKENS
    config = transformers.SiglipConfig(text_config=text, vision_config=SMALL | {"image_size": 64, "patch_size": 16})
    size = {"size": {"height": 64, "width": 64}}
    return transformers.SiglipModel(config), transformers.SiglipImageProcessor(**PICTURES, **size)


def tokenizer() -> Any:
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: at for at, word in enumerate(WORDS)}, "<unk>"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    ends = [("<start>", 1), ("<end>", 2)]
    plain.post_processor = tokenizers.processors.TemplateProcessing("<start> $A <end>", special_tokens=ends)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<end>", model_max_length=12
    )


@pytest.mark.parametrize("make", [clip, siglip])
def test_a_pair_of_towers_is_a_model_without_training(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, pictures = make()
    for part in (model.eval(), pictures, words := tokenizer()):
        part.save_pretrained(tmp_path / "saved")
    saved = str(tmp_path / "saved")
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, saved, "pair", "--out", saved])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    files = [f"pair-{side}={tmp_path / 'saved' / f'pair-{side}.onnx'}" for side in ("images", "texts")]
    lake = Lake.at(str(tmp_path / "lake"))
    build(
        write_ten(tmp_path),
        lake,
        "features.images=pair-images",
        "features.sentences=pair-texts",
        f"features.weights={','.join(files)}",
        "features.storage=float32",
        "splits.val=0.4",
        "splits.test=0.4",
    )
    columns = Columns(images="pair-images", sentences="pair-texts", jpegs=True)
    found = read_split(*read_manifest(lake, "documents"), Split.TEST, columns)
    texts = words(list(found.texts), padding="max_length", return_tensors="pt")["input_ids"]
    squares = pictures([Image.open(io.BytesIO(each)) for each in found.image_jpegs], return_tensors="pt")
    with torch.inference_mode():
        of_texts = model.get_text_features(texts).pooler_output
        of_images = model.get_image_features(squares["pixel_values"]).pooler_output
    np.testing.assert_allclose(found.sentence_vectors, unit_rows(of_texts.numpy(), np.float32), atol=1e-4)
    np.testing.assert_allclose(
        found.image_bank, unit_rows(of_images.numpy(), np.float32), atol=0.03
    )  # resized by another library
    assert np.ptp(found.image_bank, axis=0).max() > 0.1
    config = override(recipe("joint-embeddings"), ["link.steps=", "dimensions=32"])
    trained = LinkModel.load(lakes.learn(config, lake, tmp_path / "run", dataset="documents"))
    own = evaluate_model(trained, lake, "documents", Split.TEST)
    baseline = evaluate_baseline(Baseline.JOINT_EMBEDDINGS, lake, "documents", Split.TEST, config=EvaluateConfig())
    assert own.scores.means() == pytest.approx(baseline.evaluation.scores.means())
