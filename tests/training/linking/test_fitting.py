"""Steps chosen on the documents that are linked: clear of chance, or those of the model; links and page say which."""

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.overrides import override
from training.data.documents import DocumentSet
from training.link_steps import PLAN
from training.linking.links import CHOSEN_HERE, LinkedDocument, LinkOptions
from training.linking.shards import fit_steps, fitted
from training.linking.versions import LinkedVersion
from training.metrics.calibration import fit_calibration, observe
from training.metrics.links import score_documents
from training.model import LinkModel
from training.promotions.loaded import LoadedModel
from training.recipes import recipe
from training.shards import embed_split
from training.workflows.link import run_link, run_link_version

WORLD = lakes.World(noise=3.0, sentences=(6, 9), images=(6, 9))


def quiet(_: object) -> None:
    """Say nothing."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Test documents with an order."""
    made = {Split.TEST: lakes.in_order(lakes.make_documents(Split.TEST, 120, WORLD), 1.0)}
    return lakes.write_lake(tmp_path_factory.mktemp("tests") / "lake", made, is_named=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LinkModel:
    """A model of documents without an order."""
    folder, config = tmp_path_factory.mktemp("fitting"), override(recipe("closed-form"), ["dimensions=8"])
    lake = lakes.write_lake(folder / "lake", lakes.splits(WORLD, train=120, val=120), is_named=True)
    return LinkModel.load(lakes.learn(config, lake, folder / "run"))


@pytest.fixture(scope="module")
def documents(lake: Lake, model: LinkModel) -> DocumentSet:
    return embed_split(model, *read_manifest(lake, "synthetic"), Split.TEST)[0]


@pytest.fixture
def loaded(model: LinkModel) -> LoadedModel:
    return LoadedModel(model=model, uri="models:/m/1")


@pytest.fixture
def elsewhere(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """The same model, as if it had been trained on another data set."""
    card = loaded.model.card
    monkeypatch.setattr(loaded.model, "card", replace(card, data=replace(card.data, dataset="elsewhere")))
    return loaded


def link_version(loaded: LoadedModel, lake: Lake, output: Path, **options: Any) -> LinkedVersion:
    return run_link_version(loaded, lake, "synthetic", str(output), say=quiet, **options)


def test_an_order_of_the_linked_documents_makes_links_better(model: LinkModel, documents: DocumentSet) -> None:
    before = model.digest()
    fitted = fit_steps(model, documents)
    assert fitted is not None and "pictures are" in fitted.words
    means = []
    for steps in (None, fitted.steps):
        matrices = [each.similarities() for each in model.embed(documents, steps)]
        means.append(score_documents(matrices, documents.links or ()).table[:, 0].mean())
    assert means[1] > means[0] + 1 and model.digest() == before


def test_a_better_weight_of_class_names_is_found(model: LinkModel, documents: DocumentSet) -> None:
    """The maps are wrong for these documents, class names are right."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.image.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(0))
    fitted = fit_steps(model, documents)
    assert model.steps is not None and fitted is not None and "class names" in fitted.words
    assert fitted.steps.weights[1] > model.steps.weights[1]


def test_few_documents_change_nothing(model: LinkModel, documents: DocumentSet) -> None:
    assert fit_steps(model, documents.take_documents(range(19))) is None
    assert fit_steps(model, documents.take_documents([])) is None


def test_a_document_that_cannot_be_read_costs_no_other(
    loaded: LoadedModel, documents: DocumentSet, tmp_path: Path
) -> None:
    sound = list(lakes.given_documents(documents))
    odd = [
        replace(sound[0], id="not-finite", image_vectors=np.full_like(sound[0].image_vectors, np.nan)),
        replace(sound[1], id="narrow", image_vectors=np.ones((2, 3), np.float32)),
    ]
    alone = run_link(loaded=loaded, documents=sound, output=tmp_path / "a.parquet", say=quiet)
    for number, (bad, words) in enumerate(zip(odd, (alone.fitted, None), strict=True)):
        output = tmp_path / f"{number}.parquet"
        summary = run_link(loaded=loaded, documents=[bad, *sound], output=output, say=quiet)
        assert (summary.documents, [each.record_id for each in summary.failures]) == (len(sound), [bad.id])
        assert summary.fitted == words


def test_links_say_what_was_chosen_and_have_no_probability(
    model: LinkModel, loaded: LoadedModel, documents: DocumentSet, tmp_path: Path
) -> None:
    lines = list[object]()
    summary = run_link(
        loaded=loaded, documents=lakes.given_documents(documents), output=tmp_path / "l.parquet", say=lines.append
    )
    note = (pq.read_schema(tmp_path / "l.parquet").metadata or {})[b"multilink.fitted"].decode()
    assert summary.documents == len(documents) and summary.fitted == note and any(note in str(line) for line in lines)
    assert set(pq.read_table(tmp_path / "l.parquet")["probability"].to_pylist()) == {None}
    observed = observe([each.similarities() for each in model.embed(documents)], documents.links or ())
    own = replace(loaded, calibration=fit_calibration(observed, dataset="synthetic@1", split="val"))
    again = run_link(
        loaded=own, documents=lakes.given_documents(documents), output=tmp_path / "o.parquet", say=lines.append
    )
    assert again.fitted == note and [*again.cautions] == [CHOSEN_HERE]
    assert not LinkOptions(precision=0.9).can_fit and not LinkOptions(calibration=own.calibration).can_fit
    few = run_link(
        loaded=loaded,
        documents=list(lakes.given_documents(documents))[:3],
        output=tmp_path / "f.parquet",
        say=lines.append,
    )
    assert few.fitted is None and few.documents == 3
    assert np.isfinite(pq.read_table(tmp_path / "f.parquet")["similarity"].to_numpy()).all()


def test_the_page_says_what_a_similarity_is_made_of(
    loaded: LoadedModel, documents: DocumentSet, tmp_path: Path
) -> None:
    linker, words, rest = fitted(loaded.linker(), lakes.given_documents(documents))
    for each in linker.link_given(rest):
        assert isinstance(each, LinkedDocument) and each.vectors is not None and words
        terms = each.vectors.terms()
        assert list(terms)[-2:] == ["order", PLAN]
        np.testing.assert_allclose(sum(terms.values()), each.similarities, atol=1e-6)
    run_link(
        loaded=loaded,
        documents=lakes.given_documents(documents),
        output=tmp_path / "l.parquet",
        page=tmp_path,
        say=quiet,
    )
    page = (tmp_path / "index.html").read_text()
    assert re.search(r"similarity -?\d\.\d\d \(cosine -?\d\.\d\d, .*order [+-]\d\.\d\d, ", page)


def test_a_version_of_the_models_own_data_set_chooses_nothing(loaded: LoadedModel, lake: Lake, tmp_path: Path) -> None:
    assert link_version(loaded, lake, tmp_path / "own").to_json()["fitted"] is None


def test_a_version_of_another_data_set_chooses_as_a_file_of_its_documents_does(
    elsewhere: LoadedModel, lake: Lake, documents: DocumentSet, tmp_path: Path
) -> None:
    linked = link_version(elsewhere, lake, tmp_path / "links").manifest
    file = tmp_path / "l.parquet"
    alone = run_link(loaded=elsewhere, documents=lakes.given_documents(documents), output=file, say=quiet)
    assert alone.fitted and linked.fitted == alone.fitted
    columns = ["document", "sentence", "image", "similarity"]
    rows = [
        sorted(pq.read_table(path, columns=columns).to_pylist(), key=lambda row: (row["document"], row["sentence"]))
        for path in (file, tmp_path / "links" / "links")
    ]
    assert rows[0] == rows[1]
    alike = link_version(elsewhere, lake, tmp_path / "kept", options=LinkOptions(fit=False)).manifest
    assert not alike.fitted and alike.made_by != linked.made_by


def test_a_document_of_a_version_that_is_not_finite_costs_no_other(elsewhere: LoadedModel, tmp_path: Path) -> None:
    made = lakes.in_order(lakes.make_documents(Split.TEST, 120, WORLD), 1.0)
    broken = {**made.sentence_vectors, "test-000": made.sentence_vectors["test-000"] * np.nan}
    odd = {Split.TEST: replace(made, sentence_vectors=broken)}
    linked = link_version(elsewhere, lakes.write_lake(tmp_path / "lake", odd, is_named=True), tmp_path / "links")
    assert linked.to_json()["failures"] == {"not-finite": 1} and "pictures are" in linked.manifest.fitted


def test_a_version_shows_its_order_by_the_places_of_its_images(
    elsewhere: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links are drawn by the places, also by a model whose training did not read them."""
    made = {Split.TEST: lakes.with_places(lakes.make_documents(Split.TEST, 120, WORLD))}
    card = elsewhere.model.card
    monkeypatch.setattr(elsewhere.model, "card", replace(card, config=override(card.config, ["link.order=off"])))
    lake = lakes.write_lake(tmp_path / "lake", made, is_named=True)
    assert "pictures are" in link_version(elsewhere, lake, tmp_path / "links").manifest.fitted
