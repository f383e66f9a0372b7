"""Steps chosen on the documents that are linked: clear of chance, or those of the model; links and page say which."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.overrides import override
from training.data.documents import DocumentSet, GivenDocument
from training.link_steps import PLAN
from training.linking.fitting import fit_steps, fitted
from training.linking.links import CHOSEN_HERE, LinkedDocument, LinkOptions
from training.metrics.calibration import fit_calibration, observe
from training.metrics.links import score_documents
from training.model import LinkModel
from training.promotions.loaded import LoadedModel
from training.recipes import recipe
from training.shards import embed_split
from training.workflows.link import run_link, run_link_version

NOISE, SIZES = 3.0, (6, 9)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[LinkModel, DocumentSet]:
    """A model of documents without an order, and test documents with one."""
    folder, world = tmp_path_factory.mktemp("fitting"), lakes.World(noise=NOISE, sentences=SIZES, images=SIZES)
    made = lakes.splits(world, train=120, val=120, test=120)
    made[Split.TEST] = lakes.in_order(made[Split.TEST], 1.0)
    lake: Lake = lakes.write_lake(folder / "lake", made, is_named=True)
    config = override(recipe("closed-form"), ["dimensions=8"])
    model = LinkModel.load(lakes.learn(config, lake, folder / "run"))
    return model, embed_split(model, *read_manifest(lake, "synthetic"), Split.TEST)[0]


def given(documents: DocumentSet) -> Iterator[GivenDocument]:
    for number, (rows, places) in enumerate(zip(documents.sentences, documents.images, strict=True)):
        yield GivenDocument(
            id=documents.ids[number],
            texts=documents.texts[rows],
            image_vectors=documents.image_bank[documents.image_rows[places]],
            sentence_vectors=documents.sentence_vectors[rows],
        )


def test_an_order_of_the_linked_documents_makes_links_better(trained: tuple[LinkModel, DocumentSet]) -> None:
    model, documents = trained
    before = model.digest()
    fitted = fit_steps(model, documents)
    assert fitted is not None and "pictures are" in fitted.words
    means = []
    for steps in (None, fitted.steps):
        matrices = [each.similarities() for each in model.embed(documents, steps)]
        means.append(score_documents(matrices, documents.links or ()).table[:, 0].mean())
    assert means[1] > means[0] + 1 and model.digest() == before


def test_a_better_weight_of_class_names_is_found(trained: tuple[LinkModel, DocumentSet]) -> None:
    """The maps are wrong for these documents, class names are right."""
    model, documents = trained
    weights = [parameter.detach().clone() for parameter in model.image.parameters()]
    with torch.no_grad():
        for parameter in model.image.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(0))
    try:
        fitted = fit_steps(model, documents)
    finally:
        with torch.no_grad():
            for parameter, value in zip(model.image.parameters(), weights, strict=True):
                parameter.copy_(value)
    assert model.steps is not None and fitted is not None and "class names" in fitted.words
    assert fitted.steps.weights[1] > model.steps.weights[1]


def test_few_documents_change_nothing(trained: tuple[LinkModel, DocumentSet]) -> None:
    model, documents = trained
    assert fit_steps(model, documents.take_documents(range(19))) is None
    assert fit_steps(model, documents.take_documents([])) is None


def test_a_document_that_cannot_be_read_costs_no_other(trained: tuple[LinkModel, DocumentSet], tmp_path: Path) -> None:
    model, documents = trained
    sound = list(given(documents))
    odd = [
        replace(sound[0], id="not-finite", image_vectors=np.full_like(sound[0].image_vectors, np.nan)),
        replace(sound[1], id="narrow", image_vectors=np.ones((2, 3), np.float32)),
    ]
    loaded = LoadedModel(model=model, uri="models:/m/1")
    alone = run_link(loaded=loaded, documents=sound, output=tmp_path / "a.parquet", say=lambda line: None)
    for number, (bad, words) in enumerate(zip(odd, (alone.fitted, None), strict=True)):
        output = tmp_path / f"{number}.parquet"
        summary = run_link(loaded=loaded, documents=[bad, *sound], output=output, say=lambda line: None)
        assert (summary.documents, [each.record_id for each in summary.failures]) == (len(sound), [bad.id])
        assert summary.fitted == words


def test_links_say_what_was_chosen_and_have_no_probability(
    trained: tuple[LinkModel, DocumentSet], tmp_path: Path
) -> None:
    model, documents = trained
    loaded, lines = LoadedModel(model=model, uri="models:/m/1"), list[object]()
    summary = run_link(loaded=loaded, documents=given(documents), output=tmp_path / "l.parquet", say=lines.append)
    note = (pq.read_schema(tmp_path / "l.parquet").metadata or {})[b"multilink.fitted"].decode()
    assert summary.documents == len(documents) and summary.fitted == note and any(note in str(line) for line in lines)
    assert set(pq.read_table(tmp_path / "l.parquet")["probability"].to_pylist()) == {None}
    observed = observe([each.similarities() for each in model.embed(documents)], documents.links or ())
    own = replace(loaded, calibration=fit_calibration(observed, dataset="synthetic@1", split="val"))
    again = run_link(loaded=own, documents=given(documents), output=tmp_path / "o.parquet", say=lines.append)
    assert again.fitted == note and [*again.cautions] == [CHOSEN_HERE]
    assert not LinkOptions(precision=0.9).can_fit and not LinkOptions(calibration=own.calibration).can_fit
    few = run_link(loaded=loaded, documents=list(given(documents))[:3], output=tmp_path / "f.parquet", say=lines.append)
    assert few.fitted is None and few.documents == 3
    assert np.isfinite(pq.read_table(tmp_path / "f.parquet")["similarity"].to_numpy()).all()


def test_the_page_says_what_a_similarity_is_made_of(trained: tuple[LinkModel, DocumentSet], tmp_path: Path) -> None:
    model, documents = trained
    loaded = LoadedModel(model=model, uri="models:/m/1")
    linker, words, rest = fitted(loaded.linker(), given(documents))
    for each in linker.link_given(rest):
        assert isinstance(each, LinkedDocument) and each.vectors is not None and words
        terms = each.vectors.terms()
        assert list(terms)[-2:] == ["order", PLAN]
        np.testing.assert_allclose(sum(terms.values()), each.similarities, atol=1e-6)
    run_link(
        loaded=loaded, documents=given(documents), output=tmp_path / "l.parquet", page=tmp_path, say=lambda _: None
    )
    page = (tmp_path / "index.html").read_text()
    assert re.search(r"similarity -?\d\.\d\d \(cosine -?\d\.\d\d, .*order [+-]\d\.\d\d, ", page)


def test_a_version_of_another_data_set_chooses_as_a_file_of_its_documents_does(
    trained: tuple[LinkModel, DocumentSet],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, _ = trained
    world = lakes.World(noise=NOISE, sentences=SIZES, images=SIZES)
    made = {Split.TEST: lakes.in_order(lakes.make_documents(Split.TEST, 120, world), 1.0)}
    lake: Lake = lakes.write_lake(tmp_path / "lake", made, is_named=True)
    loaded = LoadedModel(model=model, uri="models:/m/1")
    own = run_link_version(loaded, lake, "synthetic", str(tmp_path / "own"), say=lambda line: None)
    assert own.to_json()["fitted"] is None
    monkeypatch.setattr(model, "card", replace(model.card, data=replace(model.card.data, dataset="elsewhere")))
    linked = run_link_version(loaded, lake, "synthetic", str(tmp_path / "links"), say=lambda line: None)
    read = embed_split(model, *read_manifest(lake, "synthetic"), Split.TEST)[0]
    alone = run_link(loaded=loaded, documents=given(read), output=tmp_path / "l.parquet", say=lambda line: None)
    assert alone.fitted and linked.manifest.fitted == alone.fitted
    columns = ["document", "sentence", "image", "similarity"]
    rows = [
        sorted(pq.read_table(path, columns=columns).to_pylist(), key=lambda row: (row["document"], row["sentence"]))
        for path in (tmp_path / "l.parquet", tmp_path / "links" / "links")
    ]
    assert rows[0] == rows[1]
    kept = LinkOptions(fit=False)
    alike = run_link_version(loaded, lake, "synthetic", str(tmp_path / "kept"), options=kept, say=lambda line: None)
    assert not alike.manifest.fitted and alike.manifest.made_by != linked.manifest.made_by


def test_a_document_of_a_version_that_is_not_finite_costs_no_other(
    trained: tuple[LinkModel, DocumentSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = trained
    world = lakes.World(noise=NOISE, sentences=SIZES, images=SIZES)
    made = lakes.in_order(lakes.make_documents(Split.TEST, 120, world), 1.0)
    broken = {**made.sentence_vectors, "test-000": made.sentence_vectors["test-000"] * np.nan}
    odd = {Split.TEST: replace(made, sentence_vectors=broken)}
    lake: Lake = lakes.write_lake(str(tmp_path / "lake"), odd, is_named=True)
    monkeypatch.setattr(model, "card", replace(model.card, data=replace(model.card.data, dataset="elsewhere")))
    loaded = LoadedModel(model=model, uri="models:/m/1")
    linked = run_link_version(loaded, lake, "synthetic", str(tmp_path / "links"), say=lambda line: None)
    assert linked.to_json()["failures"] == {"not-finite": 1} and "pictures are" in linked.manifest.fitted


def test_a_version_shows_its_order_by_the_places_of_its_images(
    trained: tuple[LinkModel, DocumentSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links are drawn by the places, also by a model whose training did not read them."""
    model, _ = trained
    world = lakes.World(noise=NOISE, sentences=SIZES, images=SIZES)
    made = {Split.TEST: lakes.with_places(lakes.make_documents(Split.TEST, 120, world))}
    lake: Lake = lakes.write_lake(tmp_path / "lake", made, is_named=True)
    card = replace(model.card, data=replace(model.card.data, dataset="elsewhere"))
    config = override(card.config, ["link.order=off"])
    monkeypatch.setattr(model, "card", replace(card, config=config))
    loaded = LoadedModel(model=model, uri="models:/m/1")
    linked = run_link_version(loaded, lake, "synthetic", str(tmp_path / "links"), say=lambda line: None)
    assert "pictures are" in linked.manifest.fitted
