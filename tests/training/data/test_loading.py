import os
import tracemalloc
from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import scale_data
from schemas.documents import Split
from schemas.features import FeatureColumn, FeatureKind
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import ConfigError, IntegrityError, NotFoundError, UsageError
from training.config import TrainConfig
from training.data import split
from training.data.documents import ALL_SENTENCES
from training.data.lake import Columns, read_split
from training.data.loading import DatasetIdentity, load_training_data
from training.data.mapped import CACHE
from training.data.ragged import Ragged
from training.data.split import index_arrays, read_index, sample, training_batches
from training.parts import DataConfig
from training.towers.vectors import SentenceSettings

CONFIG = TrainConfig(text=SentenceSettings())


@pytest.fixture
def made() -> dict[Split, object]:
    return lakes.splits(train=10, val=10)


@pytest.fixture
def lake(made: dict[Split, object], tmp_path: Path) -> Lake:
    return lakes.write_lake(tmp_path, made, shards=3)


def opened(lake: Lake) -> tuple[Manifest, object]:
    return read_manifest(lake, "synthetic")


def groups(keys: np.ndarray) -> np.ndarray:
    """Return D x D: which documents have the same key."""
    return np.equal(keys[:, None], keys[None, :])


def test_a_split_is_what_was_written(made: dict, lake: Lake) -> None:
    manifest, folder = opened(lake)
    found = read_split(manifest, folder, Split.TRAIN, Columns(images="auto", sentences="auto", links=True))
    by_id = {document.id: document for document in made[Split.TRAIN].documents}
    assert sorted(found.ids) == sorted(by_id)
    for row, key in enumerate(found.ids):
        document = by_id[key]
        sentences = slice(*found.sentences.offsets[row : row + 2])
        assert found.texts[sentences] == tuple(sentence.text for sentence in document.sentences)
        expected = made[Split.TRAIN].sentence_vectors[key].astype(np.float16)
        assert np.array_equal(found.sentence_vectors[sentences], expected)
        images = found.image_rows[slice(*found.images.offsets[row : row + 2])]
        assert [found.image_hashes[image] for image in images] == [image.hash for image in document.images]
        vectors = [made[Split.TRAIN].image_vectors[image.hash].astype(np.float16) for image in document.images]
        assert np.array_equal(found.image_bank[images], np.stack(vectors))
        assert sorted(map(tuple, found.links[row])) == [(link.sentence, link.image) for link in document.links]


@pytest.mark.parametrize("world_size", [1, 2, 4, 11])
def test_the_sample_of_any_number_of_workers_is_that_of_one(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, world_size: int
) -> None:
    training = load_training_data(lake, "synthetic", CONFIG.reading).training
    for most in (10**6, 5):
        monkeypatch.setattr(split, "SAMPLED_DOCUMENTS", most)
        one = sample(training, seed=1, rank=0, world_size=1)
        parts = [sample(training, seed=1, rank=rank, world_size=world_size) for rank in range(world_size)]
        found = [key for part in parts for documents in part for key in documents.ids]
        assert found == [key for documents in one for key in documents.ids]
        assert (len(found) == len(training.index)) == (most > 5) and len(found) >= min(most, len(training.index))


def test_documents_come_in_the_order_asked_for(lake: Lake) -> None:
    training = load_training_data(lake, "synthetic", CONFIG.reading).training
    whole, index = lakes.whole(training), training.index
    assert np.array_equal(whole.sentences.counts, index.sentences.counts)
    assert np.array_equal(whole.images.counts, index.images.counts)
    assert np.array_equal(groups(whole.image_sets), groups(index.image_sets))
    positions = np.random.default_rng(0).permutation(len(index))[:7]
    found = training.documents(positions)
    assert found.ids == tuple(whole.ids[position] for position in positions)
    for row, position in enumerate(positions):
        assert found.texts[found.sentences.rows(row)] == whole.texts[whole.sentences.rows(position)]
    assert set(found.image_rows.tolist()) == set(range(len(found.image_hashes)))


def test_a_host_reads_a_part_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lakes.whole(load_training_data(lake, "synthetic", CONFIG.reading).training)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("a part was read again"))
    again = load_training_data(lake, "synthetic", CONFIG.reading).training
    assert len(lakes.whole(again)) == len(again.index)


def test_training_links_are_not_read(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    projected: list[tuple[str, list[str]]] = []
    read = pq.ParquetFile.read

    def spy(file: pq.ParquetFile, columns: list[str]) -> object:
        split = file.read_row_group(0, columns=["split"]).column("split")[0].as_py() if "id" in columns else "images"
        projected.append((split, columns))
        return read(file, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read", spy)
    data = load_training_data(lake, "synthetic", CONFIG.reading)
    training, validation = lakes.whole(data.training), lakes.whole(data.validation)
    assert training.links is None and validation.links is not None
    assert {split for split, _ in projected} == {"train", "val", "images"}
    assert not [columns for split, columns in projected if split == "train" and "link" in " ".join(columns)]
    assert not [columns for _, columns in projected if "after_sentence" in columns]


def test_where_images_stand_is_read_where_it_is_asked_for(made: dict, tmp_path: Path) -> None:
    first, second, third = made[Split.TRAIN].documents[:3]
    images = len(first.images)
    documents = (
        replace(first, after_sentence=(len(first.sentences), *[None] * (images - 1))),
        replace(second, after_sentence=tuple(0 for _ in second.images)),
        third,
    )
    lake = lakes.write_lake(tmp_path, {Split.TRAIN: replace(made[Split.TRAIN], documents=documents)}, shards=1)
    found = read_split(*opened(lake), Split.TRAIN, Columns(places=True))
    expected = [len(first.sentences), *[-1] * (images - 1), *[0] * len(second.images), *[-1] * len(third.images)]
    assert found.after_sentence is not None and found.after_sentence.tolist() == expected
    taken = found.take_documents([2, 1]).after_sentence
    assert taken is not None and taken.tolist() == [-1] * len(third.images) + [0] * len(second.images)
    assert read_split(*opened(lake), Split.TRAIN, Columns()).after_sentence is None


def test_parts_older_than_a_column_are_read_as_if_it_were_null(lake: Lake) -> None:
    lakes.rewrite_parts(lake, "documents/", lambda table: table.drop_columns("after_sentence"))
    found = read_split(*opened(lake), Split.TRAIN, Columns(places=True, links=True))
    assert found.after_sentence is not None and set(found.after_sentence.tolist()) == {-1}
    assert len(found.after_sentence) == found.images.total
    assert len(load_training_data(lake, "synthetic", CONFIG.reading).training.index)


def test_an_image_that_stands_outside_its_document_is_refused(lake: Lake) -> None:
    def misplaced(table: pa.Table) -> pa.Table:
        column = [[99] * len(row) for row in table.column("images").to_pylist()]
        index = table.schema.get_field_index("after_sentence")
        return table.set_column(index, table.schema.field(index), pa.array(column, pa.list_(pa.int32())))

    lakes.rewrite_parts(lake, "documents/", misplaced)
    with pytest.raises(IntegrityError, match=r"document train-\d+: after_sentence 99 is outside 0 to \d sentences"):
        read_split(*opened(lake), Split.TRAIN, Columns(places=True))


def test_links_keep_their_three_states(made: dict, tmp_path: Path) -> None:
    documents = made[Split.TRAIN].documents
    states = (replace(documents[0], links=None), replace(documents[1], links=()), documents[2])
    lake = lakes.write_lake(tmp_path, {Split.TRAIN: replace(made[Split.TRAIN], documents=states)}, shards=1)
    links = read_split(*opened(lake), Split.TRAIN, Columns(links=True)).links
    assert links[0] is None and links[1] is not None and links[2] is not None
    assert links[1].shape == (0, 2) and len(links[2])


def test_shared_images_are_in_the_bank_once_and_share_a_key(made: dict, tmp_path: Path) -> None:
    first, second = made[Split.TRAIN].documents[:2]
    twin = replace(first, id="twin", images=first.images[::-1])
    changed = replace(made[Split.TRAIN], documents=(first, second, twin))
    changed = replace(changed, sentence_vectors=changed.sentence_vectors | {"twin": changed.sentence_vectors[first.id]})
    lake = lakes.write_lake(tmp_path, {Split.TRAIN: changed}, shards=2)
    found = read_split(*opened(lake), Split.TRAIN, Columns(images="auto"))
    assert len(found.image_bank) == len(first.images) + len(second.images)
    keys = dict(zip(found.ids, found.image_sets, strict=True))
    assert keys[first.id] == keys["twin"] != keys[second.id]
    assert np.array_equal(groups(read_index(*opened(lake), Split.TRAIN).image_sets), groups(found.image_sets))


def test_choosing_an_extractor(lake: Lake) -> None:
    manifest, _ = opened(lake)
    one, two = (column("a"),), (column("a"), column("b"))

    def chosen(wanted: str, columns: tuple[FeatureColumn, ...]) -> str | None:
        return Columns(images=wanted).resolved(replace(manifest, features={"images": columns})).images

    assert chosen("auto", one) == "a" and chosen("b", two) == "b"
    assert chosen("auto", (*one, column("net-names"))) == "a"  # those of class names are chosen by nobody else
    for wanted, columns, words in (
        ("auto", two, r"found a, b; set data\.image_features"),
        ("c", two, r"'c'.* it has a, b"),
        ("auto", (), "found none"),
    ):
        with pytest.raises(ConfigError, match=words):
            chosen(wanted, columns)


def column(name: str) -> FeatureColumn:
    return FeatureColumn(name=name, kind=FeatureKind.VECTOR, dimensions=3)


def test_what_is_not_there_is_named(made: dict, lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no split 'test'; splits: train, val"):
        read_split(*opened(lake), Split.TEST, Columns())
    with pytest.raises(ConfigError, match="it has image-test"):
        load_training_data(lake, "synthetic", replace(CONFIG, data=DataConfig(image_features="resnet50")).reading)
    with pytest.raises(NotFoundError, match="no split 'train'"):
        only_validation = lakes.write_lake(tmp_path / "b", {Split.VAL: made[Split.VAL]})
        load_training_data(only_validation, "synthetic", CONFIG.reading)
    with pytest.raises(UsageError, match="found none"):
        empty = replace(made[Split.TRAIN], documents=())
        load_training_data(lakes.write_lake(tmp_path / "c", {Split.TRAIN: empty}), "synthetic", CONFIG.reading)


def test_a_part_with_other_rows_than_the_manifest_says(lake: Lake) -> None:
    manifest, folder = opened(lake)
    wrong = tuple(replace(entry, rows=entry.rows + 1) for entry in manifest.files)
    with pytest.raises(IntegrityError, match="the manifest has"):
        read_index(replace(manifest, files=wrong), folder, Split.TRAIN)


def test_vectors_that_are_not_finite_are_refused(made: dict, tmp_path: Path) -> None:
    given = made[Split.TRAIN]
    first = given.documents[0]
    broken = {**given.sentence_vectors, first.id: given.sentence_vectors[first.id] * np.inf}
    lake = lakes.write_lake(tmp_path, {Split.TRAIN: replace(given, sentence_vectors=broken)})
    with pytest.raises(IntegrityError, match=f"{len(first.sentences)} vectors are not finite, the first is number 0"):
        lakes.whole(load_training_data(lake, "synthetic", CONFIG.reading).training)


def test_ragged_rows() -> None:
    ragged = Ragged.of([2, 0, 3])
    assert ragged.positions(np.array([2, 1, 0])).tolist() == [2, 3, 4, 0, 1]
    assert ragged.positions(np.array([], dtype=np.int64)).tolist() == []
    assert ragged.take(np.array([2, 1])).offsets.tolist() == [0, 3, 3]
    assert (ragged.owners.tolist(), ragged.numbers.tolist()) == ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
    assert [range(5)[rows] for rows in ragged] == [range(2), range(2, 2), range(2, 5)]
    assert Ragged.joined([ragged, Ragged.of([1])]).offsets.tolist() == [0, 2, 2, 5, 6]


def test_a_part_with_one_flipped_byte_is_refused(made: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D9: a changed part whose Parquet still reads was trained on in silence."""
    monkeypatch.setenv(CACHE, str(tmp_path))  # what a host has of the part in its manifest would be taken
    lake = lakes.write_lake(tmp_path, {Split.TRAIN: made[Split.TRAIN]})
    manifest, folder = opened(lake)
    part = Path(folder.uri) / manifest.parts("images", Split.TRAIN)[0].path
    lakes.flip_a_byte(part)
    with pytest.raises(IntegrityError, match=r"part-.*parquet: damaged: SHA-256"):
        lakes.whole(load_training_data(lake, "synthetic", CONFIG.reading).training)
    part.unlink()
    with pytest.raises(IntegrityError, match=r"part-.*parquet: missing"):
        lakes.whole(load_training_data(lake, "synthetic", CONFIG.reading).training)


def test_several_columns_are_read_as_one_vector(tmp_path: Path) -> None:
    made = lakes.make_documents(Split.TRAIN, 6, lakes.World())
    named: Lake = lakes.write_lake(tmp_path / "lake", {Split.TRAIN: made}, is_named=True)
    manifest, folder = opened(named)
    single = {
        name: read_split(manifest, folder, Split.TRAIN, Columns(images=name)).image_bank
        for name in ("image-test", "noisy-names")
    }
    both = read_split(manifest, folder, Split.TRAIN, Columns(images="noisy-names+image-test", sentences="all"))
    assert both.image_bank.tolist() == np.hstack([single["noisy-names"], single["image-test"]]).tolist()
    assert both.sentence_vectors.shape[1] == 12 + 8
    assert Columns(images="all", sentences="all").resolved(manifest).images == "image-test+noisy-names"
    with pytest.raises(ConfigError, match=r"data.image_features = 'image-test\+other': other is not in the data set"):
        Columns(images="image-test+other").resolved(manifest)
    with pytest.raises(
        ConfigError, match=r"data.image_features = 'image-test\+image-test': expected different columns"
    ):
        Columns(images="image-test+image-test").resolved(manifest)
    both_all = DataConfig(image_features="all", sentence_features="all")
    identity = load_training_data(named, "synthetic", replace(CONFIG, data=both_all).reading).identity
    assert identity.image_columns == {"image-test": slice(0, 16), "noisy-names": slice(16, 24)}
    assert identity.sentence_dimensions == 12 + 8


def test_class_names_are_columns_of_the_size_of_their_encoder_s() -> None:
    """A column of another size is an input like others; of several that fit, all count."""

    def named(images: str, sizes: tuple[int, ...]) -> object:
        return DatasetIdentity(
            dataset="d",
            version="1",
            manifest_digest="",
            image_features=images,
            image_dimensions=sum(sizes),
            sentence_features="other+use-multilingual",
            sentence_dimensions=5,
            image_sizes=sizes,
            sentence_sizes=(2, 3),
        ).named_columns

    sentences = slice(2, 5)
    assert named("a-names+b+c-names", (7, 4, 3)) == (sentences, (slice(11, 14),))
    assert named("a-names+b+c-names", (3, 4, 3)) == (sentences, (slice(0, 3), slice(7, 10)))
    assert named("a-names+b", (7, 4)) is None


def test_an_epoch_maps_each_of_many_small_shards_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 256 shards that were kept open those of a window were closed before they were needed again."""
    lake = lakes.write_lake(tmp_path, lakes.splits(train=600), shards=300)
    training = load_training_data(lake, "synthetic", CONFIG.reading).training
    opened: list[int] = []
    from_arrays = split.from_arrays
    monkeypatch.setattr(split, "from_arrays", lambda arrays: opened.append(1) or from_arrays(arrays))
    before = len([*Path("/proc/self/fd").iterdir()])
    for positions in training_batches(training.index, negative_documents=10, seed=0, epoch=1):
        training.documents(positions)
    assert 290 < len(opened) <= 300
    assert len([*Path("/proc/self/fd").iterdir()]) < before + 10  # a file that is mapped is not open


def peak(folder: Path, documents: int) -> int:
    """Return the bytes that making an index takes at the most, Arrow's own aside."""
    manifest, opened = read_manifest(scale_data.make_version(folder, documents, validation=1), scale_data.DATASET)
    tracemalloc.start()
    arrays = index_arrays(manifest, opened, Split.TRAIN, view=ALL_SENTENCES)
    _, found = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert arrays["sentences"].to_pylist()[:3] == [0, scale_data.SENTENCES, 2 * scale_data.SENTENCES]
    assert arrays["images"][-1].as_py() == documents * scale_data.IMAGES
    assert arrays["usable"].to_pylist() == list(range(documents))
    return found


def test_an_index_takes_32_bytes_a_document_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_data, "IN_SHARD", 500)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # what two threads hold at once is chance
    less, more = (peak(tmp_path / str(documents), documents) for documents in (5_000, 25_000))
    assert more - less < 20_000 * 36
