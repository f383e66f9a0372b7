"""Linking a data set version: the same links as evaluation's matrices, the same bytes however it was done."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from schemas.documents import Split
from schemas.failures import FAILURE_SCHEMA
from schemas.lake import MANIFEST, Folder, Lake
from schemas.messages import BuildError, NotFoundError, UsageError
from schemas.overrides import override
from schemas.parts import Shard
from schemas.tables import check_schema
from training.evaluation.judge import judge_model
from training.linking.links import DEFAULT_OPTIONS, Linker, LinkOptions
from training.linking.records import LINK_SCHEMA, LINKED_SCHEMA, LinksManifest, read_links
from training.linking.versions import LinkedVersion, link_version, prepare_linking
from training.metrics.calibration import Calibration, PrecisionPoint
from training.model import LinkModel
from training.shards import RunShards, run_here, shards_run_by
from training.similarity.similarity import Matching, match

COUNTS = {Split.TRAIN: 100, Split.VAL: 10, Split.TEST: 30}
TOLERANCE = 1e-6  # evaluation's products are of other documents at once, and float32
URI = "models:/linker/1"
CALIBRATION = Calibration(
    sentences=(1, 99),
    images=(1, 99),
    dataset="synthetic@v1",
    split="val",
    documents=10,
    links=30,
    true_links=20,
    slopes=(4.0, 0.0, 0.0),
    intercept=-1.0,
    points=(PrecisionPoint(0.5, 0.9, 20),),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lakes.write_lake(tmp_path_factory.mktemp("linking") / "lake", lakes.splits(**COUNTS))


@pytest.fixture(scope="module")
def folder(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lakes.learn(override(lakes.TINY, ["training.epochs=3"]), lake, tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LinkModel:
    return LinkModel.load(folder)


def link(
    model: LinkModel,
    lake: Lake,
    output: Path,
    *,
    splits: Sequence[str] = (),
    run: RunShards = run_here,
    options: LinkOptions = DEFAULT_OPTIONS,
    uri: str = URI,
    lines: list[str] | None = None,
) -> LinkedVersion:
    linker = Linker(model=model, uri=uri, options=options)
    linking = prepare_linking(linker, lake, "synthetic", output=Folder(str(output)))
    said = [] if lines is None else lines
    with shards_run_by(run):
        return link_version(model, linking, splits=splits, say=said.append)


def test_links_go_by_the_numbers_that_documents_have(lake: Lake, model: LinkModel, tmp_path: Path) -> None:
    """A blank first sentence and every second image were left out."""
    made = lakes.splits(**COUNTS)
    documents = tuple(
        replace(
            document,
            sentence_numbers=tuple(range(1, len(document.sentences) + 1)),
            image_numbers=tuple(range(0, 2 * len(document.images), 2)),
        )
        for document in made[Split.TEST].documents
    )
    moved = lakes.write_lake(tmp_path / "lake", {Split.TEST: replace(made[Split.TEST], documents=documents)})
    found = {}
    for name, home in (("whole", lake), ("moved", moved)):
        link(model, home, tmp_path / name, splits=["test"])
        links = pq.read_table(tmp_path / name / "links" / "test").to_pylist()
        truth = pq.read_table(tmp_path / name / "documents" / "test").to_pylist()
        found[name] = (
            [(row["document"], row["sentence"], row["image"]) for row in links],
            [(row["document"], each["sentence"], each["image"]) for row in truth for each in row["truth"]],
            [(row["wrong"], row["missed"]) for row in truth],
        )
    for whole, numbered in zip(found["whole"][:2], found["moved"][:2], strict=True):
        assert numbered == [(document, sentence + 1, 2 * image) for document, sentence, image in whole]
    assert found["whole"][2] == found["moved"][2]


def test_links_are_the_matching_of_evaluations_matrices(lake: Lake, model: LinkModel, tmp_path: Path) -> None:
    linked = link(model, lake, tmp_path, options=LinkOptions(calibration=CALIBRATION))
    seen = 0
    for split, count in COUNTS.items():
        evaluation = judge_model(model, lake, "synthetic", split).evaluation
        matrices = dict(zip(evaluation.ids, evaluation.matrices, strict=True))
        table = pq.read_table(tmp_path / "links" / split)
        check_schema(table.schema, LINK_SCHEMA, where=str(split))
        found: dict[str, set[tuple[int, int]]] = {key: set() for key in matrices}
        for row in table.to_pylist():
            expected = float(matrices[row["document"]][row["sentence"], row["image"]])
            assert row["similarity"] == pytest.approx(expected, abs=TOLERANCE)
            assert row["probability"] == pytest.approx(1 / (1 + np.exp(1 - 4 * expected)), abs=1e-5)
            assert row["model"] == URI
            found[row["document"]].add((row["sentence"], row["image"]))
        for key, matrix in matrices.items():
            rows, columns = match(matrix, min(matrix.shape), Matching.AT_MOST)
            assert found[key] == set(zip(rows.tolist(), columns.tolist(), strict=True))
        counts = linked.manifest.splits[str(split)]
        assert (counts.documents, counts.links, dict(counts.failures)) == (count, table.num_rows, {})
        seen += count
    assert (linked.documents, linked.shards, linked.reused) == (seen, 9, 0)
    assert linked.to_json()["documents_per_second"] > 0
    written = LinksManifest.from_json((tmp_path / MANIFEST).read_text(), where="manifest")
    assert written == linked.manifest
    assert {entry.path for entry in written.files} | {MANIFEST} == lakes.tree(tmp_path).keys()


def test_what_came_of_each_document_is_what_evaluation_and_its_links_say(
    lake: Lake, model: LinkModel, tmp_path: Path
) -> None:
    link(model, lake, tmp_path, splits=["test"], options=LinkOptions(calibration=CALIBRATION))
    table = pq.read_table(tmp_path / "documents" / "test")
    check_schema(table.schema, LINKED_SCHEMA, where="documents")
    outcomes = {row["document"]: row for row in table.to_pylist()}
    evaluation = judge_model(model, lake, "synthetic", Split.TEST).evaluation
    assert outcomes.keys() == set(evaluation.ids)
    links = pq.read_table(tmp_path / "links" / "test").to_pylist()
    for key, truth, matrix in zip(evaluation.ids, evaluation.links, evaluation.matrices, strict=True):
        row = outcomes[key]
        own = [each for each in links if each["document"] == key]
        predicted = {(each["sentence"], each["image"]) for each in own}
        known = {(sentence, image) for sentence, image in truth.tolist()} if truth is not None else set()
        assert {(each["sentence"], each["image"]) for each in row["truth"]} == known
        assert (row["wrong"], row["missed"]) == (len(predicted - known), len(known - predicted))
        assert (row["sentences"], row["images"], row["links"]) == (*matrix.shape, len(own))
        assert row["confidence"] == pytest.approx(np.mean([each["probability"] for each in own]), abs=1e-6)
        auc = evaluation.document_auc.get(key)
        assert row["auc"] == (None if auc is None else pytest.approx(auc, abs=1e-3))
    assert any(row["wrong"] for row in outcomes.values()) and any(row["auc"] for row in outcomes.values())


def test_of_documents_without_ground_truth_nothing_is_wrong(model: LinkModel, tmp_path: Path) -> None:
    made = lakes.without_links(lakes.make_documents(Split.TEST, 4, lakes.World()))
    link(model, lakes.write_lake(tmp_path / "lake", {Split.TEST: made}), tmp_path / "links")
    rows = pq.read_table(tmp_path / "links" / "documents").to_pylist()
    assert len(rows) == 4
    assert {(row["wrong"], row["missed"], row["auc"], row["truth"]) for row in rows} == {(None,) * 4}


def test_what_a_manifest_lists_is_not_read_again(
    lake: Lake, model: LinkModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process read and digested every file of a version that was linked, to find that nothing was left to do."""
    first = link(model, lake, tmp_path / "links")
    read = Folder.read
    names: list[str] = []
    monkeypatch.setattr(Folder, "read", lambda folder, name: names.append(name) or read(folder, name))
    again = link(model, lake, tmp_path / "links")
    assert (again.reused, again.manifest) == (9, first.manifest)
    assert not [name for name in names if name.endswith(".parquet")]
    assert read_links(Folder(str(tmp_path / "links"))) is read_links(Folder(str(tmp_path / "links")))
    (path,) = (tmp_path / "links" / "links" / "test").glob("part-00001*")
    path.unlink()
    mended = link(model, lake, tmp_path / "links")
    assert (mended.reused, mended.manifest) == (8, first.manifest)
    assert any(name.startswith("links/test/") for name in names) and not any("/val/" in name for name in names)


def test_done_is_done_and_splits_add_up(lake: Lake, model: LinkModel, tmp_path: Path) -> None:
    link(model, lake, tmp_path / "all")
    some = link(model, lake, tmp_path / "some", splits=["test", "test"])
    assert (some.shards, set(some.manifest.splits)) == (3, {"test"})
    rest = link(model, lake, tmp_path / "some", splits=["val", "train"])
    assert set(rest.manifest.splits) == {"test", "train", "val"}
    assert lakes.tree(tmp_path / "some") == lakes.tree(tmp_path / "all")
    again = link(model, lake, tmp_path / "some", run=never)
    assert (again.reused, again.documents, again.to_json()["documents_per_second"]) == (9, 0, 0)


def test_a_split_that_fails_leaves_the_manifest_of_those_that_are_done(
    lake: Lake, model: LinkModel, tmp_path: Path
) -> None:
    done = link(model, lake, tmp_path, splits=["test"]).manifest
    with pytest.raises(AssertionError, match="nothing is left"):
        link(model, lake, tmp_path, splits=["val"], run=never)
    assert LinksManifest.from_json((tmp_path / MANIFEST).read_text(encoding="utf-8"), where=MANIFEST) == done
    (tmp_path / "links" / "test" / sorted(each.name for each in (tmp_path / "links" / "test").iterdir())[0]).unlink()
    with pytest.raises(AssertionError, match="nothing is left"):
        link(model, lake, tmp_path, splits=["test"], run=never)
    assert not (tmp_path / MANIFEST).exists()


def never(model: LinkModel, task: object, shards: Sequence[Shard]) -> Iterator[Any]:
    raise AssertionError("nothing is left to be linked")


def test_other_settings_are_linked_anew_and_other_models_refused(lake: Lake, model: LinkModel, tmp_path: Path) -> None:
    link(model, lake, tmp_path)
    kept = link(model, lake, tmp_path, options=LinkOptions(calibration=CALIBRATION, precision=0.9))
    assert kept.reused == 0
    similarities = pq.read_table(tmp_path / "links").column("similarity").to_numpy()
    assert similarities.min() >= 0.5
    before = lakes.tree(tmp_path)
    with pytest.raises(UsageError, match=r"expected links of models:/linker/2 on synthetic@v1, found links of models:"):
        link(model, lake, tmp_path, uri="models:/linker/2")
    (tmp_path / MANIFEST).unlink()  # as a killed call leaves it
    with pytest.raises(UsageError, match=r"found links of models:/linker/1 .*part-00000-of-00003.*another folder"):
        link(model, lake, tmp_path, uri="models:/linker/2")
    (tmp_path / MANIFEST).write_bytes(before[MANIFEST])
    assert lakes.tree(tmp_path) == before
    (tmp_path / "links" / "test" / "own.parquet").write_bytes(b"")
    with pytest.raises(UsageError, match=r"links/test/own.parquet is not of synthetic@v1"):
        link(model, lake, tmp_path)


def with_other_features(folder: Path) -> LinkModel:
    model = LinkModel.load(folder)
    model.card = replace(model.card, data=replace(model.card.data, image_features="resnet50"))
    return model


def test_mistakes_are_said_before_anything_is_linked(
    lake: Lake, folder: Path, model: LinkModel, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match="no split 'dev'; splits: test, train, val"):
        link(model, lake, tmp_path, splits=["dev"])
    with pytest.raises(UsageError, match=r"lacks features that the model reads \(resnet50 and text-test\)"):
        link(with_other_features(folder), lake, tmp_path)
    with pytest.raises(UsageError, match=r"--precision 0.9: models:/linker/1 has no calibration"):
        link(model, lake, tmp_path, options=LinkOptions(precision=0.9))
    with pytest.raises(NotFoundError, match="no version 'v2'"):
        prepare_linking(Linker(model=model, uri=URI), lake, "synthetic@v2", output=Folder(str(tmp_path)))
    assert lakes.tree(tmp_path) == {}


def test_a_bad_document_is_a_failure_row_and_the_rest_goes_on(model: LinkModel, tmp_path: Path) -> None:
    made = lakes.make_documents(Split.TEST, 30, lakes.World())
    whole = lakes.write_lake(tmp_path / "whole", {Split.TEST: made})
    vectors = dict(made.sentence_vectors)
    vectors["test-003"] = vectors["test-003"] * np.nan
    vectors["test-004"] = vectors["test-004"][:-1]
    broken = lakes.write_lake(tmp_path / "broken", {Split.TEST: replace(made, sentence_vectors=vectors)})
    lost = made.documents[5].images[0].hash
    part = "images/test/part-00002-of-00003.parquet"
    lakes.rewrite_parts(broken, part, lambda table: table.filter(pc.field("hash") != lost))

    expected = link(model, whole, tmp_path / "expected")
    found = link(model, broken, tmp_path / "found")
    assert found.manifest.splits["test"].failures == {"not-finite": 1, "unreadable": 2}
    assert found.manifest.splits["test"].documents == expected.manifest.splits["test"].documents == 30
    failures = pq.read_table(tmp_path / "found" / "failures")
    check_schema(failures.schema, FAILURE_SCHEMA, where="failures")
    count = len(made.documents[4].sentences)
    assert {(row["stage"], row["record_id"], row["message"]) for row in failures.to_pylist()} == {
        ("linking", "test-003", "its vectors are not finite"),
        ("linking", "test-004", f"{count} sentences but {count - 1} text-test vectors"),
        ("linking", "test-005", f"image {lost[:16]} is not in the images part of its shard"),
    }
    good = similarities(tmp_path / "found")
    assert {key[0] for key in good} == {f"test-{number:03d}" for number in range(30)} - {
        "test-003",
        "test-004",
        "test-005",
    }
    rest = {key: value for key, value in similarities(tmp_path / "expected").items() if key[0] in {k[0] for k in good}}
    assert good == pytest.approx(rest, abs=TOLERANCE)
    again = link(model, broken, tmp_path / "found", run=never)
    assert again.manifest == found.manifest


def test_a_version_of_bad_documents_alone_is_no_success(model: LinkModel, tmp_path: Path) -> None:
    made = lakes.make_documents(Split.TEST, 4, lakes.World())
    vectors = {key: value * np.nan for key, value in made.sentence_vectors.items()}
    lake = lakes.write_lake(tmp_path / "lake", {Split.TEST: replace(made, sentence_vectors=vectors)})
    with pytest.raises(BuildError, match=r"none of 4 documents could be linked \(not-finite 4\)"):
        link(model, lake, tmp_path / "links")
    assert not (tmp_path / "links" / MANIFEST).exists()


def similarities(output: Path) -> Mapping[tuple[str, int, int], float]:
    rows = pq.read_table(output / "links").to_pylist()
    return {(row["document"], row["sentence"], row["image"]): row["similarity"] for row in rows}
