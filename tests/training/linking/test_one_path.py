"""One document has the same links in a data set, in a file and over HTTP, whatever the model reads of it."""

import base64
from collections.abc import Iterator
from dataclasses import replace

import lakes
import numpy as np
import pytest
import torch
from configurations import shrunk
from fastapi.testclient import TestClient
from scipy.optimize import linear_sum_assignment

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.config import TrainConfig
from training.data.documents import GivenDocument
from training.data.lake import Columns, read_split
from training.data.loading import read_for_model
from training.linking.links import LinkedDocument, Linker
from training.metrics.relations import RelationPredictor
from training.mlflow.serving import make_app
from training.model import LinkModel
from training.parts import DataConfig
from training.recipes import RECIPES
from training.towers.vectors import SentenceSettings

ROLES = ("headline", "lead", "caption", "body")


def configurations() -> dict[str, TrainConfig]:
    """Every recipe, small; and what no recipe has: frozen sentence vectors, several languages, roles of any tower."""
    small = {name: make() for name, make in RECIPES.items()}
    small = {name: shrunk(each) for name, each in small.items()}
    gru = small["hessel-2019"]
    aligned = replace(gru.text, aligned_vectors=("de=de.vec", "fr=fr.vec"), train_words=False)
    return small | {
        "sentence": replace(gru, text=SentenceSettings()),
        "one for all": replace(gru, text=aligned),
        "captions and bodies": replace(gru, data=DataConfig(roles=("caption", "body"))),
    }


CONFIGURATIONS = configurations()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Articles with a text for each role, in two languages; one without a caption, one of a headline alone."""
    world = lakes.World(sentences=(4, 9), images=(1, 3))
    made = lakes.with_roles(lakes.make_documents(Split.TEST, 9, world), ROLES, "de")
    documents = list(made.documents)
    for number, kept in ((2, 2), (5, 1)):
        documents[number] = replace(documents[number], sentences=documents[number].sentences[:kept], links=())
        made.sentence_vectors[documents[number].id] = made.sentence_vectors[documents[number].id][:kept]
    documents = [replace(each, language="fr") if number % 3 else each for number, each in enumerate(documents)]
    root = str(tmp_path_factory.mktemp("one-path") / "lake")
    return lakes.write_lake(
        root, {Split.TEST: replace(made, documents=tuple(documents))}, shards=1, world=world, is_rich=True
    )


def model_of(config: TrainConfig, lake: Lake) -> LinkModel:
    words = ["a", "seen", *(f"thing{number}" for number in range(40)), *(f"side{number}" for number in range(9))]
    keyed = [f"{language}:{word}" for language in ("de", "fr") for word in words]
    return lakes.untrained(config, lake, [*words, *keyed])


def given(lake: Lake, model: LinkModel) -> Iterator[GivenDocument]:
    """Yield the documents as a user has them: every sentence, with all that is known of it."""
    rows = read_split(
        *read_manifest(lake, "synthetic"),
        Split.TEST,
        Columns(images="auto", sentences="auto", regions="auto", jpegs=True),
    )
    data = model.card.data
    for number, sentences in enumerate(rows.sentences):
        images = rows.image_rows[rows.images.rows(number)]
        yield GivenDocument(
            id=rows.ids[number],
            texts=rows.texts[sentences],
            image_vectors=rows.image_bank[images] if data.image_dimensions else np.zeros((len(images), 0)),
            sentence_vectors=rows.sentence_vectors[sentences] if data.sentence_dimensions else None,
            roles=(rows.roles or ())[sentences],
            language=(rows.languages or ())[number],
            regions=rows.regions.take(images) if data.region_dimensions else None,
            jpegs=[rows.image_jpegs[row] for row in images],
        )


def record(document: GivenDocument) -> dict[str, object]:
    """Return a document as it is asked about over HTTP."""
    found: dict[str, object] = {
        "sentences": list(document.texts),
        "image_vectors": document.image_vectors.astype(float).tolist(),
        "pictures": [base64.b64encode(jpeg).decode() for jpeg in document.jpegs or ()],
        "roles": list(document.roles or ()),
        "language": document.language,
    }
    if document.sentence_vectors is not None:
        found["sentence_vectors"] = document.sentence_vectors.astype(float).tolist()
    if document.regions is not None:
        parts = list(document.regions.images)
        found["region_vectors"] = [document.regions.vectors[rows].astype(float).tolist() for rows in parts]
        found["region_labels"] = [list(document.regions.labels[rows]) for rows in parts]
    return found


@pytest.mark.parametrize(
    "name",  # pictures go through a network by hessel-2019-fine-tuned, too; this one is larger
    [pytest.param(name, marks=[pytest.mark.trial] * (name == "alikhani-2022-fine-tuned")) for name in CONFIGURATIONS],
)
def test_the_links_of_a_data_set_of_a_file_and_over_http_are_the_same(name: str, lake: Lake) -> None:
    model = model_of(CONFIGURATIONS[name], lake)
    linker = Linker(model=model, uri="models:/m/1")
    read = read_for_model(model.card.config.reading, model.card.data, *read_manifest(lake, "synthetic"), Split.TEST)
    in_data_set = list(linker.link_set(read))
    in_file = list(linker.link_given(given(lake, model)))
    wanted = model.card.config.text.sources if "multi-source" in name else model.card.config.data.roles
    with TestClient(make_app(linker)) as client:
        columns = client.get("/example").json()["dataframe_records"][0]
        records = [{key: row[key] for key in columns} for row in map(record, given(lake, model))]
        answer = client.post("/invocations", json={"dataframe_records": records})
    assert answer.status_code == 200, answer.text
    assert (
        len({float(x) for each in in_data_set if isinstance(each, LinkedDocument) for x in each.similarities.flat}) > 9
    )
    texts = {each.id: list(zip(each.texts, each.roles or (), strict=True)) for each in given(lake, model)}
    for one, other, served in zip(in_data_set, in_file, answer.json()["predictions"], strict=True):
        assert isinstance(one, LinkedDocument) and isinstance(other, LinkedDocument) and one.id == other.id
        assert one.sentence_numbers.tolist() == other.sentence_numbers.tolist() == served["read"]
        assert all(not wanted or texts[one.id][number][1] in wanted for number in served["read"])
        np.testing.assert_allclose(one.similarities, other.similarities, atol=1e-5)
        np.testing.assert_allclose(one.similarities.ravel(), np.ravel(served["similarities"]), atol=1e-5)
        pairs = [[(link.sentence, link.image) for link in each.links] for each in (one, other)]
        assert pairs == [[(link["sentence"], link["image"]) for link in served["links"]]] * 2


def test_links_have_relations(lake: Lake) -> None:
    model = model_of(CONFIGURATIONS["hessel-2019"], lake)
    torch.manual_seed(1)
    model = LinkModel(replace(model.card, relations=("story", "visible")), model.vocabulary).eval()
    with torch.no_grad():
        model.relations.affine.weight.mul_(30)
    documents, linker, predictor = list(given(lake, model)), Linker(model=model, uri="m"), RelationPredictor.of(model)
    for document, found in zip(documents, linker.link_given(documents), strict=True):
        [vectors] = model.embed(model.read([document]))
        matrix, crossed = vectors.texts @ vectors.images.T, predictor.crossed(vectors.texts, vectors.images)
        rows, columns = linear_sum_assignment(np.maximum(matrix, 0), maximize=True)
        pairs = {(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if matrix[r, c] >= 0}
        assert {(link.sentence, link.image) for link in found.links} == pairs
        for link in found.links:
            assert link.similarity == pytest.approx(float(matrix[link.sentence, link.image]), abs=1e-6)
            probabilities = {each.name: each.probability for each in link.relations or ()}
            expected = zip(("story", "visible"), crossed[link.sentence, link.image], strict=True)
            assert probabilities == pytest.approx(dict(expected), abs=1e-5)
    with TestClient(make_app(Linker(model=model, uri="m"))) as client:
        [answer] = client.post("/invocations", json=client.get("/example").json()).json()["predictions"]
    assert all(set(link["relations"]) == {"story", "visible"} for link in answer["links"])


def test_a_caption_models_links_name_the_captions_sentence(lake: Lake) -> None:
    """With roles headline, lead, caption, body a caption is sentence 2; it used to be written as 0."""
    model = model_of(replace(CONFIGURATIONS["hessel-2019"], data=DataConfig(roles=("caption",))), lake)
    linker = Linker(model=model, uri="m")
    documents = {each.id: each for each in given(lake, model)}
    found = [each for each in linker.link_given(documents.values()) if isinstance(each, LinkedDocument)]
    named = [(documents[each.id].roles or ())[link.sentence] for each in found for link in each.links]
    assert named and set(named) == {"caption"}
    assert {number for each in found for number in each.sentence_numbers.tolist()} <= {2, 6}
