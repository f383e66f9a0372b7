"""Steps at link time against loops; every caller of a model has the same numbers; without a step nothing changes."""

import json
from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from fastapi.testclient import TestClient

from newsroom.labels.linked import link_sets, linked_documents, outcomes
from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import ConfigError
from schemas.overrides import override
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.loading import load_training_data, read_for_model
from training.data.ragged import unit_rows
from training.evaluation.judge import judge_model
from training.link_steps import LinkSteps, half_sinkhorn
from training.linking.links import Linker
from training.loop import link_steps
from training.loop.link_steps import NAMES_WEIGHTS, settle_steps
from training.mlflow.registering import model_card
from training.mlflow.serving import make_app
from training.model import LinkModel
from training.parts import LinkSettings, LinkStep
from training.promotions.loaded import LoadedModel
from training.promotions.record import ModelVersion
from training.recipes import recipe
from training.shards import embed_split
from training.similarity.similarity import predicted_pairs
from training.workflows.link import run_link_version

CONFIG = override(
    recipe("closed-form"),
    ["dimensions=8", "training.epochs=2", "training.select=last", "link.bank=30", "link.neighbours=4"],
)
EVERY_STEP = LinkSettings(steps=tuple(LinkStep), bank=20, neighbours=5)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lakes.write_lake(tmp_path_factory.mktemp("lake"), lakes.splits(train=20, val=20, test=20), is_named=True)


def model_of(lake: Lake, config: TrainConfig, folder: Path) -> LinkModel:
    return LinkModel.load(lakes.learn(config, lake, folder))


@pytest.fixture(scope="module")
def solved(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that a solver has made."""
    return lakes.learn(CONFIG, lake, tmp_path_factory.mktemp("solved"))


@pytest.fixture
def model(solved: Path) -> LinkModel:
    return LinkModel.load(solved)


def test_csls_and_class_names_by_hand() -> None:
    rng = np.random.default_rng(0)
    texts, images, text_bank, image_bank = (
        unit_rows(rng.normal(size=(count, 6)), np.float32) for count in (4, 3, 9, 7)
    )
    steps = LinkSteps(replace(EVERY_STEP, steps=(LinkStep.CSLS, LinkStep.CLASS_NAMES)), 6)
    named, named_bank = (rng.normal(size=size).astype(np.float32) for size in ((4, 3), (9, 7)))
    assert steps.similarities(texts, images, named) == pytest.approx(texts @ images.T)  # weights are 0
    a_weight_of_one = steps.fill(text_bank, image_bank, named_bank)
    assert a_weight_of_one == pytest.approx(np.std(text_bank @ image_bank.T) / np.std(named_bank))
    steps.weights.copy_(torch.tensor([1.0, 0.3]))

    def near(row: np.ndarray, bank: np.ndarray) -> float:
        return float(np.mean(sorted((float(row @ other) for other in bank), reverse=True)[:5]))

    level = np.mean([near(row, image_bank) for row in text_bank]) / 2
    level += np.mean([near(row, text_bank) for row in image_bank]) / 2
    found = steps.similarities(texts, images, named)
    for i, text in enumerate(texts):
        for j, image in enumerate(images):
            expected = text @ image - near(text, image_bank) / 2 - near(image, text_bank) / 2 + level
            expected += 0.3 * (named[i, j] - named_bank.mean())
            assert found[i, j] == pytest.approx(expected, abs=1e-6)


def test_half_sinkhorn_by_hand() -> None:
    scores = np.random.default_rng(2).normal(size=(4, 2)) / 5
    kernel = np.hstack([np.exp(10 * scores), np.ones((4, 1))])
    for _ in range(15):
        kernel /= kernel.sum(axis=1, keepdims=True)
        kernel *= np.array([1, 1, 2]) / kernel.sum(axis=0)
    assert half_sinkhorn(scores) == pytest.approx(scores / 2 + (np.log(kernel[:, :2]) + np.log(4)) / 20)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 2), (1, 4)])
def test_half_sinkhorn_keeps_equal_pairs_as_they_are(n: int, m: int) -> None:
    assert half_sinkhorn(np.zeros((n, m))) == pytest.approx(np.zeros((n, m)), abs=1e-9)


def test_every_caller_has_the_same_numbers(lake: Lake, tmp_path: Path) -> None:
    """Evaluation, links of a data set, of a file, over HTTP and as MLflow calls, relinked documents and pages."""
    model = model_of(lake, override(CONFIG, ["link.names=0.4"]), tmp_path)
    model.steps.weights[0] = 1.0
    documents, vectors = embed_split(model, *read_manifest(lake, "synthetic"), Split.TEST)
    assert (
        read_for_model(model.card.config.reading, model.card.data, *read_manifest(lake, "synthetic"), "test").ids
        == documents.ids
    )
    linker = Linker(model=model, uri="x")
    with TestClient(make_app(linker)) as client:
        records = [
            {
                "sentences": list(each.texts),
                "image_vectors": np.asarray(each.image_vectors, float).tolist(),
                "sentence_vectors": np.asarray(each.sentence_vectors, float).tolist(),
            }
            for each in lakes.given_documents(documents)
        ]
        served = json.loads(client.post("/invocations", json={"dataframe_records": records}).text)["predictions"]
    callers = {
        "evaluate": list(judge_model(model, lake, "synthetic").evaluation.matrices),
        "shards": [each.similarities() for each in vectors],
        "model": model.similarities(documents),
        "link a version": [each.similarities for each in linker.link_set(documents)],
        "link a file": [each.similarities for each in linker.link_given(lakes.given_documents(documents))],
        "serve": [np.array(each["similarities"]) for each in served],
    }
    written = {name: [found[key] for key in documents.ids] for name, found in links_written(model, lake).items()}
    for number, (rows, places) in enumerate(zip(documents.sentences, documents.images, strict=True)):
        own = by_hand(model, documents, np.arange(rows.start, rows.stop), documents.image_rows[places])
        for name, matrices in callers.items():
            assert matrices[number] == pytest.approx(own, abs=1e-5), name
        for name, links in written.items():
            assert links[number].keys() == set(zip(*(each.tolist() for each in predicted_pairs(own)), strict=True)), (
                name
            )
            assert all(own[pair] == pytest.approx(value, abs=1e-5) for pair, value in links[number].items()), name
        plain = vectors[number].texts @ vectors[number].images.T
        assert np.abs(plain - own).max() > 0.01


def links_written(model: LinkModel, lake: Lake) -> dict[str, dict[str, dict[tuple[int, int], float]]]:
    """Return what `relink` writes into documents, and what the pages show of the same links, by document."""
    output, loaded = lake.links("synthetic", "v1", "saved", "1"), LoadedModel(model=model, uri="models:/saved/1")
    run_link_version(loaded, lake, "synthetic", output.uri, splits=["test"], with_documents=True, say=print)
    relinked = {
        row["id"]: {(link["sentence"], link["image"]): link["similarity"] for link in row["predicted_links"]}
        for path in output.files()
        if path.startswith("relinked/")
        for row in pq.read_table(output.open(path)).to_pylist()
    }
    manifest, version = read_manifest(lake, "synthetic")
    (links,) = link_sets(lake, manifest)
    rows = range(outcomes(links).num_rows)
    shown = {
        each.drawn.id: {(sentence, image): value for sentence, image, value in each.drawn.predicted}
        for each in linked_documents(links, manifest, version, rows)
    }
    return {"relink": relinked, "pages": shown}


def by_hand(model: LinkModel, documents: DocumentSet, rows: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """All three steps of one document, out of what the model's file holds."""
    state = {name: value.numpy() for name, value in model.state_dict().items() if name.startswith("steps.")}
    with torch.inference_mode():
        texts, images = (each.numpy() for each in model.encode(documents))
    texts, images = texts[rows], images[shown]
    hubs = np.array([np.mean(np.sort(state["steps.images"] @ text)[-4:]) for text in texts])[:, None]
    hubs = hubs + np.array([np.mean(np.sort(state["steps.texts"] @ image)[-4:]) for image in images])
    sentences = documents.sentence_vectors[rows].astype(float)
    names = documents.image_bank[shown].astype(float)
    sentences, names = sentences[:, 12:], names[:, 16:]  # text-test, use-multilingual; image-test, noisy-names
    named = (sentences @ names.T) / np.linalg.norm(sentences, axis=1)[:, None] / np.linalg.norm(names, axis=1)
    scores = texts @ images.T - hubs / 2 + state["steps.levels"][0]
    scores = scores + state["steps.weights"][1] * (named - state["steps.levels"][1])
    return half_sinkhorn(scores)


def test_search_and_relations_go_by_plain_vectors(lake: Lake, model: LinkModel) -> None:
    _, [first, *_] = embed_split(model, *read_manifest(lake, "synthetic"), Split.TEST)
    assert np.linalg.norm(first.texts, axis=1) == pytest.approx(np.ones(len(first.texts)), abs=1e-5)
    assert first.texts.shape[1] == first.images.shape[1] == 8


def test_weights_are_those_of_the_lowest_rank_of_own_images(lake: Lake, tmp_path: Path) -> None:
    """The rank of each candidate, document by document; the model has learnt little, and class names help."""
    model = model_of(
        lake,
        override(CONFIG, ["objective.name=cross-document", "objective.similarity=dc", "training.epochs=1"]),
        tmp_path,
    )
    steps = model.steps
    assert steps is not None and steps.counts.tolist() == [30, 30]
    data = load_training_data(lake, "synthetic", CONFIG.reading)
    settle_steps(model, data)
    chosen = steps.weights.tolist()
    assert chosen[1] > 0
    documents = read_for_model(model.card.config.reading, model.card.data, *read_manifest(lake, "synthetic"), Split.VAL)
    texts, images = (each.numpy() for each in model.encode(documents))
    named = steps.namer(documents)

    def rank(weights: tuple[float, float]) -> float:
        ranks: list[float] = []
        for rows in documents.sentences:
            sets = []
            for places in documents.images:
                shown = documents.image_rows[places]
                matrix = steps.weighted(texts[rows], images[shown], named(rows, shown), weights)
                sets.append((matrix.max(axis=1).mean() + matrix.max(axis=0).mean()) / 2)
            own = sets[len(ranks)]
            ranks.append(sum(value > own for value in sets) + sum(value == own for value in sets) / 2 + 0.5)
        return float(np.mean(ranks))

    unit_weight = chosen[1] / next(w for w in NAMES_WEIGHTS[1:] if is_multiple(chosen[1], w, model, data))
    tried = {
        (hubs, unit_weight * weight): rank((hubs, unit_weight * weight))
        for hubs in (0.0, 1.0)
        for weight in NAMES_WEIGHTS
    }
    assert rank((chosen[0], chosen[1])) == pytest.approx(min(tried.values()))


def is_multiple(value: float, weight: float, model: LinkModel, data: object) -> bool:
    """Whether a chosen weight is this one of those tried: alone among them, it gives the same."""
    fixed = override(model.card.config, [f"link.names={weight}"])
    other = LinkModel(replace(model.card, config=fixed), None)
    other.load_state_dict(model.state_dict())
    settle_steps(other.eval(), data)  # type: ignore[arg-type]
    return float(other.steps.weights[1]) == pytest.approx(value)


def test_without_validation_documents_class_names_count_a_little(lake: Lake, model: LinkModel) -> None:
    data = replace(load_training_data(lake, "synthetic", CONFIG.reading), validation=None)
    settle_steps(model, data)
    assert model.steps.weights[0] == 1.0
    assert is_multiple(float(model.steps.weights[1]), 0.2, model, data)


@pytest.mark.parametrize(("names", "chosen"), [("auto", (1.0, 0.2)), ("0.4", (1.0, 0.4)), ("0", (0.0, 0.0))])
def test_few_validation_documents_choose_no_weight(
    lake: Lake, tmp_path: Path, names: str, chosen: tuple[float, float]
) -> None:
    """`csls` is done beside class names alone."""
    few: Lake = lakes.write_lake(tmp_path / "lake", lakes.splits(train=20, val=4), is_named=True)
    model = model_of(few, override(CONFIG, [f"link.names={names}"]), tmp_path / "run")
    assert model.steps.weights[0] == chosen[0]
    assert is_multiple(
        float(model.steps.weights[1]), chosen[1], model, load_training_data(few, "synthetic", CONFIG.reading)
    )


def test_a_bank_has_a_limit() -> None:
    with pytest.raises(ConfigError, match=r"link\.bank = 10001"):
        override(CONFIG, ["link.bank=10001"])


def test_weights_are_ranked_by_as_many_documents_as_memory_holds(
    lake: Lake, model: LinkModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    data = load_training_data(lake, "synthetic", CONFIG.reading)
    n, m = data.validation.index.sentences.counts[:3].sum(), data.validation.index.images.counts[:3].sum()
    monkeypatch.setattr(link_steps, "PAIRS_AT_ONCE", int(n * m))
    documents = data.validation.documents
    monkeypatch.setattr(data.validation, "documents", lambda rows: (read.append(len(rows)), documents(rows))[1])
    settle_steps(model, data)
    assert read == [3]


def test_cards_and_reports_name_the_way_and_the_steps(lake: Lake, tmp_path: Path) -> None:
    model = model_of(lake, override(CONFIG, ["link.names=0.4"]), tmp_path / "solved")
    model.steps.weights.copy_(torch.tensor([0.0, 0.314]))
    assert model.described() == {
        "Trained": "closed form, solved for without a gradient",
        "Columns of sentences": "text-test, use-multilingual",
        "Columns of images": "image-test, noisy-names",
        "Similarity of a pair": "cosine, then class names of weight 0.31, half Sinkhorn",
    }
    model.steps.weights[0] = 1.0
    assert model.described()["Similarity of a pair"] == "cosine, then csls, class names of weight 0.31, half Sinkhorn"
    plain = model_of(lake, override(CONFIG, ["objective.name=cross", "link.steps="]), tmp_path / "steps")
    assert plain.described()["Trained"] == "by steps along a gradient"
    assert plain.described()["Similarity of a pair"] == "cosine"
    version = ModelVersion(name="m", version="1", run_id="r", tags={})
    card = model_card(model, version, None)
    assert "similarity is their cosine, then csls, class names of weight 0.31, half Sinkhorn." in " ".join(card.split())
    assert "- Trained: closed form, solved for without a gradient." in card


def test_a_model_without_steps_has_no_bank(lake: Lake, tmp_path: Path) -> None:
    model = model_of(lake, replace(CONFIG, link=LinkSettings()), tmp_path)
    assert not [name for name in model.state_dict() if name.startswith("steps.")]


def test_a_run_starts_from_a_model_with_a_bank(lake: Lake, solved: Path, tmp_path: Path) -> None:
    settings = ["objective.name=cross-document", f"training.start_from={solved}"]
    model = model_of(lake, override(CONFIG, settings), tmp_path)
    assert model.steps.counts.tolist() == [30, 30]
