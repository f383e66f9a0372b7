"""A text to ranked pictures: the numbers of linking, filters before ranking, sources, words, relations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
import torch
from small_indexes import given_documents, made_index

from newsroom.archive.filters import parse_filters
from newsroom.archive.index import Index, open_index
from newsroom.archive.vectors import RRF
from newsroom.search.queries import Query, QueryReader, RawDocument
from newsroom.search.search import RankBy, search
from schemas.documents import Split
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import read_manifest
from schemas.messages import IntegrityError, NotFoundError, UsageError
from training.data.documents import GivenDocument
from training.data.lake import Columns, read_split
from training.data.loading import read_for_model
from training.metrics.relations import RefineConfig
from training.model import LinkModel
from training.text.vocabulary import Vocabulary
from training.towers.multi_source import MultiSourceSettings
from training.towers.recurrence import GruSettings
from training.towers.vectors import LinearSettings

Reader = Callable[[Sequence[RawDocument]], list[GivenDocument]]


@pytest.fixture(scope="module")
def made() -> dict[Split, Any]:
    """Documents whose sentences are all different: each has a vector of its own."""
    parts = lakes.splits(train=100, val=25, test=30)
    for split, part in parts.items():
        texts = [[replace(s, text=f"{s.text} {each.id}") for s in each.sentences] for each in part.documents]
        documents = (replace(each, sentences=tuple(own)) for each, own in zip(part.documents, texts, strict=True))
        parts[split] = replace(part, documents=tuple(documents))
    return parts


@pytest.fixture(scope="module")
def lake(made: dict[Split, Any], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Every second picture of the test split is said to be of a year."""
    said = {}
    for number, key in enumerate(sorted(made[Split.TEST].image_vectors)):
        metadata = {"caption": f"number{number} shown", "date": str(2010 + number % 2), "keywords": ["k"]}
        said[key] = {"metadata": metadata, "width": 40, "height": 30}
    return lakes.write_lake(tmp_path_factory.mktemp("searching") / "lake", made, said=said)


@pytest.fixture(scope="module")
def model(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> LinkModel:
    return LinkModel.load(lakes.learn(lakes.TINY, lake, tmp_path_factory.mktemp("trained")))


@pytest.fixture(scope="module")
def index(model: LinkModel, lake: Lake) -> Index:
    found = made_index(model, lake)
    assert found.folder.uri.endswith("indexes/synthetic/v1/m-1") and not found.is_reused
    return open_index(found.folder.uri)


@pytest.fixture(scope="module")
def reader(made: dict[Split, Any]) -> Reader:
    """Give sentences of the lake the vectors they have there, and others those of their words."""
    pictures, vectors = {}, {}
    for part in made.values():
        pictures |= part.image_vectors
        for document in part.documents:
            texts = [sentence.text for sentence in document.sentences]
            vectors |= zip(texts, part.sentence_vectors[document.id], strict=True)

    def vector_of(text: str) -> np.ndarray:
        return vectors[text] if text in vectors else np.random.default_rng(sum(text.encode())).normal(size=12)

    return partial(given_documents, vector_of=vector_of, pictures=pictures)


@pytest.fixture(scope="module")
def truth(model: LinkModel, lake: Lake) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Vectors of texts and of images as linking and evaluation have them."""
    texts, images = {}, {}
    manifest, folder = read_manifest(lake, "synthetic")
    for split in manifest.splits:
        read = read_for_model(model.card.config.reading, model.card.data, manifest, folder, split)
        for number, embedded in enumerate(model.embed(read)):
            texts |= dict(zip(read.texts[read.sentences.rows(number)], embedded.texts, strict=True))
            shown = read.image_rows[read.images.rows(number)]
            images |= {read.image_hashes[row]: vector for row, vector in zip(shown, embedded.images, strict=True)}
    return texts, images


def test_a_texts_ranking_is_that_of_linkings_similarities(
    index: Index, reader: Reader, truth: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
) -> None:
    texts, images = truth
    for text in list(texts)[::37]:
        found = search(index, Query(texts={"caption": text}), top=10, reader=reader)
        assert found.searched == index.records.count == len(images)
        similarities = {key: float(vector @ texts[text]) for key, vector in images.items()}
        wanted = sorted(images, key=lambda key: -similarities[key])[:10]
        assert [(each.rank, each.picture.image) for each in found.images] == list(enumerate(wanted, start=1))
        for each in found.images:
            assert each.score == pytest.approx(each.similarity, abs=1e-6)
            assert each.similarity == pytest.approx(similarities[each.picture.image], abs=1e-5)
            assert each.visual_rank == each.rank and each.relations is None
        assert found.expected == () and not found.is_refined


def test_probabilities_are_those_of_validation_texts_in_this_index(
    index: Index, reader: Reader, lake: Lake, truth: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
) -> None:
    texts, images = truth
    hashes, vectors = list(images), np.stack(list(images.values()))
    manifest, folder = read_manifest(lake, "synthetic")
    documents = read_split(manifest, folder, Split.VAL, Columns(images=None, sentences=None, links=True))
    best, is_found, right = [], [], []
    for number, links in enumerate(documents.links or ()):
        for sentence in sorted(set(links[:, 0].tolist())):
            cosines = vectors @ texts[documents.texts[documents.sentences.rows(number)][sentence]]
            first = np.argsort(-cosines)[:10]
            own = documents.image_rows[documents.images.rows(number)][links[links[:, 0] == sentence, 1]]
            are_right = [hashes[row] in {documents.image_hashes[image] for image in own} for row in first]
            best.append(cosines[first[0]])
            is_found.append(any(are_right))
            right += are_right
    confidence = index.confidence
    assert confidence is not None and confidence.images == len(images)
    assert (confidence.queries, confidence.found) == (len(best), sum(is_found)) and 0 < sum(is_found) < len(best)
    assert confidence.pictures.observations == len(right) and confidence.pictures.right == sum(right)
    assert np.mean(confidence.any_of_first.probability(np.array(best))) == pytest.approx(np.mean(is_found), abs=0.02)
    text = next(iter(texts))
    found = search(index, Query(texts={"caption": text}), top=12, reader=reader)
    assert found.first_ten == pytest.approx(
        float(confidence.any_of_first.probability(np.array([found.images[0].similarity]))[0])
    )
    assert [each.probability is None for each in found.images] == [False] * 10 + [True] * 2
    assert f"one of the first 10 is right with {found.first_ten:.0%}" in found.lines()
    for other in (
        search(index, Query(texts={"caption": text}, like=(hashes[0],)), reader=reader),
        search(index, Query(texts={"caption": text}), filters=parse_filters(["date=2011"]), reader=reader),
        search(index, Query(texts={"caption": text}), rank_by=RankBy.FUSED, reader=reader),
    ):
        assert other.first_ten is None and {each.probability for each in other.images} == {None}


def test_without_enough_validation_texts_there_is_no_probability(
    model: LinkModel, made: dict[Split, Any], reader: Reader, tmp_path: Path
) -> None:
    bare = lakes.write_lake(tmp_path / "lake", {Split.TEST: made[Split.TEST]})
    index = open_index(made_index(model, bare).folder.uri)
    assert index.confidence is None
    (text, *_) = made[Split.TEST].documents[0].sentences
    found = search(index, Query(texts={"caption": text.text}), reader=reader)
    assert found.first_ten is None and {each.probability for each in found.images} == {None}


def test_a_filter_acts_before_ranking(index: Index, reader: Reader, truth: tuple[dict[str, np.ndarray], ...]) -> None:
    texts, images = truth
    text = next(iter(texts))
    found = search(index, Query(texts={"caption": text}), filters=parse_filters(["date=2011"]), top=500, reader=reader)
    years = {each.picture.metadata.date for each in found.images}
    assert years == {"2011"} and 10 < found.searched == len(found.images) < len(images) / 4
    order = [each.picture.image for each in found.images]
    assert order == sorted(order, key=lambda key: -float(images[key] @ texts[text]))


def test_words_and_both_rank_too(index: Index, reader: Reader) -> None:
    text = "number3 and number5"
    lexical = search(index, Query(texts={"caption": text}), rank_by=RankBy.LEXICAL, reader=reader)
    assert sorted(each.picture.metadata.caption or "" for each in lexical.images) == ["number3 shown", "number5 shown"]
    fused = search(index, Query(texts={"caption": text}), rank_by=RankBy.FUSED, top=400, reader=reader)
    for each in fused.images:
        parts = [rank for rank in (each.visual_rank, each.lexical_rank) if rank is not None]
        assert each.score == pytest.approx(sum(1 / (RRF + rank) for rank in parts))
    assert [each.score for each in fused.images] == sorted((each.score for each in fused.images), reverse=True)


def test_pictures_can_be_asked_with(
    index: Index, reader: Reader, truth: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
) -> None:
    texts, images = truth
    key, other = sorted(images)[7], sorted(images)[90]
    for query in (Query(picture=key), Query(like=(key,))):
        found = search(index, query, top=3, reader=reader)
        assert found.images[0].picture.image == key and found.images[0].similarity == pytest.approx(1, abs=1e-3)
    text = next(iter(texts))
    found = search(index, Query(texts={"lead": text}, like=(key,), unlike=(other,)), reader=reader)
    moved = texts[text] + 0.75 * images[key] - 0.15 * images[other]
    wanted = max(images, key=lambda each: float(images[each] @ moved))
    assert found.images[0].picture.image == wanted
    assert found.images[0].similarity == pytest.approx(
        float(images[wanted] @ moved) / float(np.linalg.norm(moved)), abs=1e-4
    )
    with pytest.raises(NotFoundError, match="not in this index"):
        search(index, Query(like=("0" * 64,)), reader=reader)


def test_a_word_that_is_left_out_is_not_read(index: Index, reader: Reader) -> None:
    said, queries = Query(texts={"caption": "One  boat, near the QUAY"}), QueryReader(index.model, reader)
    left = replace(said, left_out=frozenset({("caption", 1), ("caption", 5)}))
    assert left.given == {"caption": "One , near the"}
    one, other = queries.vectors([left, Query(texts=left.given)])
    np.testing.assert_array_equal(one, other)
    images = index.vectors.rows[np.arange(5)]
    (added,) = queries.influence(said, images).values()
    assert len(added) == 6
    whole = queries.vectors([said])[0] @ images.T
    without = queries.vectors([replace(said, left_out=frozenset({("caption", 1)}))])[0] @ images.T
    assert added[1] == pytest.approx(float((whole - without).mean()), abs=1e-5)


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        (Query(), {}, "found none"),
        (Query(texts={"caption": "  "}), {}, "found none"),
        (Query(texts={"title": "x"}), {}, "by role"),
        (Query(texts={"caption": "x"}), {"top": 0}, "--top 0"),
        (Query(texts={"caption": "x"}), {"refine": RefineConfig()}, "no relations"),
        (Query(like=("0" * 64,)), {"rank_by": RankBy.FUSED}, "expected a text"),
    ],
)
def test_what_cannot_be_searched_for_is_said(
    index: Index, reader: Reader, query: Query, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        search(index, query, reader=reader, **options)  # type: ignore[arg-type]


def test_an_index_is_made_once_and_with_equal_bytes(model: LinkModel, lake: Lake, index: Index, tmp_path: Path) -> None:
    first = lake.index("synthetic", "v1", "m-1")
    before = {name: first.read(name) for name in first.files()}
    assert made_index(model, lake).is_reused
    for left in ({}, {MANIFEST: before[MANIFEST].replace(b'"format": 3', b'"format": 2')}):  # by an earlier version
        first.delete(MANIFEST)
        for name, data in left.items():
            first.write(name, data)
        assert not made_index(model, lake).is_reused
        assert {name: first.read(name) for name in first.files()} == before


def test_a_damaged_index_is_refused(model: LinkModel, lake: Lake) -> None:
    folder = made_index(model, lake, name="damaged-1").folder
    open_index(folder.uri).model.digest()
    (fields,) = (name for name in folder.files() if name.endswith("fields.arrow"))
    whole = folder.read(fields)
    for damaged, message in ((whole[:-1], "cut short"), (whole[:900] + b"?" + whole[901:], "damaged, by its SHA-256")):
        folder.write(fields, damaged)
        with pytest.raises(IntegrityError, match=message):
            open_index(folder.uri)
    folder.write(fields, whole)
    open_index(folder.uri)
    folder.remove()
    with pytest.raises(NotFoundError, match="expected the folder of an index"):
        open_index(folder.uri)


def test_an_index_on_an_object_store_is_fetched_whole_and_searched(lake: Lake, index: Index, object_store: str) -> None:
    source = lake.index("synthetic", "v1", "m-1")
    target, damaged = (Folder(f"s3://lake/indexes/{name}?{object_store}") for name in ("here", "damaged"))
    for name in sorted(source.files(), key=lambda name: name == MANIFEST):
        target.write(name, source.read(name))
        damaged.write(name, source.read(name).replace(b"NUMPY", b"NUMPI"))
    copied = open_index(target.uri)
    key = index.records.pictures([3])[0].image
    one, other = (search(each, Query(like=(key,)), top=5).images for each in (index, copied))
    assert one == other
    with pytest.raises(IntegrityError, match=r"vectors\.npy: damaged, by its SHA-256"):
        open_index(damaged.uri)


def test_sources_of_a_fuser_have_weights_and_words_attention(tmp_path: Path) -> None:
    roles = ("headline", "lead", "caption", "body")
    world = lakes.World(sentences=(4, 4), images=(1, 1))
    part = lakes.with_roles(lakes.make_documents(Split.TEST, 12, world), roles, "de")
    lake = lakes.write_lake(tmp_path / "lake", {Split.TEST: part}, world=world)
    text = MultiSourceSettings(sources=roles, word_dimensions=8, dropout=0.0)
    config = replace(lakes.TINY, text=text, image=LinearSettings(dropout=0.0))
    model = lakes.untrained(config, lake, ["a", "seen", "from", *(f"thing{number}" for number in range(40))])
    index = open_index(made_index(model, lake).folder.uri)
    document = part.documents[0]
    texts = {sentence.role: sentence.text for sentence in document.sentences}
    found = search(index, Query(texts=texts, language="de"))
    read = read_for_model(config.reading, model.card.data, *read_manifest(lake, "synthetic"), Split.TEST)
    embedded = dict(zip(read.ids, model.embed(read), strict=True))
    similarities = {
        read.image_hashes[int(read.image_rows[read.images.rows(n)][0])]: float(
            embedded[key].images[0] @ embedded[document.id].texts[0]
        )
        for n, key in enumerate(read.ids)
    }
    assert {e.picture.image: e.similarity for e in found.images} == pytest.approx(similarities, abs=1e-5)
    assert [role for role, _ in found.sources] == list(roles)
    shown = next(each for each in found.images if each.picture.image == document.images[0].hash)
    assert shown.picture.shown_with == texts["caption"]
    alone = search(index, Query(texts={"headline": texts["headline"]}, language="de"))
    assert len(alone.sources) == 1 and alone.images[0].similarity != found.images[0].similarity
    with pytest.raises(UsageError, match="the model reads headline"):
        search(index, Query(texts={"sentence": "x"}))


def test_a_model_of_several_languages_is_told_which(model: LinkModel) -> None:
    config = replace(
        lakes.TINY, text=GruSettings(word_dimensions=8, aligned_vectors=("de=a", "fr=b"), train_words=False)
    )
    many = LinkModel(
        replace(model.card, config=config), Vocabulary.from_counts({"de:boot": 1, "fr:bateau": 1}, min_count=1)
    )
    queries = QueryReader(many.eval())
    found = queries.vectors(
        [Query(texts={"caption": text}, language=of) for text, of in (("Boot", "de"), ("Boot", "fr"))]
    )
    assert found.shape == (2, 16) and not np.allclose(found[0], found[1])
    with pytest.raises(UsageError, match="the model reads texts in de, fr"):
        queries.vectors([Query(texts={"caption": "Boot"})])


def test_relations_refine_and_say_what_to_expect(
    model: LinkModel, lake: Lake, made: dict[Split, Any], reader: Reader
) -> None:
    torch.manual_seed(1)
    related = LinkModel(replace(model.card, relations=("story", "visible")), model.vocabulary).eval()
    related.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        related.relations.affine.weight.mul_(30)
    other = open_index(made_index(related, lake, name="r-1").folder.uri)
    query = Query(texts={"caption": made[Split.TRAIN].documents[1].sentences[0].text})
    plain = search(other, query, top=30, reader=reader)
    refined = search(other, query, top=30, reader=reader, refine=RefineConfig(below=2.0, weight=3.0))
    by_hand = {}
    text, rows = QueryReader(other.model, reader).vectors([query])[0], other.vectors.rows.parts[0]
    for row, picture in zip(rows, other.records.pictures(range(other.records.count)), strict=True):
        with torch.no_grad():
            own = torch.sigmoid(related.relations.affine(torch.tensor(np.concatenate([text, row])))).numpy()
        by_hand[picture.image] = float(text @ row) * np.exp(3.0 * abs(own - 0.5)).sum(), own
    assert refined.is_refined and not plain.is_refined
    assert [e.picture.image for e in refined.images] == sorted(by_hand, key=lambda key: -by_hand[key][0])[:30]
    assert [e.picture.image for e in refined.images] != [e.picture.image for e in plain.images]
    for each in plain.images[:5]:
        own = by_hand[each.picture.image][1]
        assert dict(each.relations) == pytest.approx({"story": own[0], "visible": own[1]}, abs=1e-4)
    means = np.mean([by_hand[each.picture.image][1] for each in plain.images[:10]], axis=0)
    assert dict(plain.expected) == pytest.approx({"story": means[0], "visible": means[1]}, abs=1e-4)
    assert [value for _, value in plain.expected] == sorted((v for _, v in plain.expected), reverse=True)
