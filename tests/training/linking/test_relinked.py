"""Files of links; documents keep what they had, agreement is what a plain count gives, a killed one goes on."""

import csv
import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pyarrow.parquet as pq
import pytest
from forked import run_code

from schemas.document_rows import to_row
from schemas.documents import Given, GivenLink, Split
from schemas.lake import MANIFEST, Folder, Lake
from schemas.tables import check_schema
from training.linking.links import Linker, by_similarity, write_links
from training.linking.records import LINK_SCHEMA, RELINKED_SCHEMA, PredictedLink, PredictedRelation
from training.linking.relinked import Agreement, agreement_of
from training.linking.versions import LinkedVersion, link_version, prepare_linking
from training.model import LinkModel
from training.shards import RunShards, run_here, shards_run_by
from training.similarity.similarity import predicted_pairs
from training.workflows.link import compare_links

KILLED = """
import os, signal, sys
from pathlib import Path
from schemas.lake import Folder, Lake
from training.linking.links import Linker
from training.linking.versions import link_version, prepare_linking
from training.shards import run_here, shards_run_by
from training.model import LinkModel

lake, folder, output = sys.argv[1:]

def dying(model, task, shards):
    for number, found in enumerate(run_here(model, task, shards), start=1):
        if number == 2:
            (Path(output) / found.shard.path("links")).unlink()  # as if it had been killed between documents and links
            os.kill(os.getpid(), signal.SIGKILL)
        yield found

model = LinkModel.load(Path(folder))
linker = Linker(model=model, uri="models:/linker/1")
linking = prepare_linking(linker, Lake.at(lake), "synthetic", output=Folder(output), with_documents=True)
with shards_run_by(dying):
    link_version(model, linking, say=print)
"""


def linker_of(model: LinkModel) -> Linker:
    return Linker(model=model, uri="models:/linker/1")


def with_given(made: Any) -> Any:
    """Return documents to which a corpus gave the true links of every second image, and false ones of the others."""

    def given(number: int, document: Any) -> Given | None:
        if number % 5 == 4:
            return None
        true = {link.image: link.sentence for link in document.links}
        count = len(document.sentences)
        return Given(
            tuple(
                GivenLink((text + image % 2) % count, image, 0.25 * image)
                for image, text in sorted(true.items())
            )
        )  # fmt: skip

    documents = (replace(each, given=given(number, each)) for number, each in enumerate(made.documents))
    return replace(made, documents=tuple(documents))


@pytest.fixture(scope="module")
def made() -> dict[Split, Any]:
    counts = {Split.TRAIN: 60, Split.VAL: 10, Split.TEST: 20}
    return {split: with_given(lakes.make_documents(split, count, lakes.World())) for split, count in counts.items()}


@pytest.fixture(scope="module")
def lake(made: dict[Split, Any], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lakes.write_lake(tmp_path_factory.mktemp("relinking") / "lake", made, is_rich=True)


@pytest.fixture(scope="module")
def folder(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lakes.learn(lakes.TINY, lake, tmp_path_factory.mktemp("trained"))


def relink(folder: Path, lake: Lake, output: Path, run: RunShards = run_here) -> LinkedVersion:
    model = LinkModel.load(folder)
    place = Folder(str(output))
    linking = prepare_linking(linker_of(model), lake, "synthetic", output=place, with_documents=True)
    with shards_run_by(run):
        return link_version(model, linking, say=lambda line: None)


def pairs(links: list[Mapping[str, Any]]) -> set[tuple[int, int]]:
    return {(link["sentence"], link["image"]) for link in links}


def test_documents_keep_what_they_had(lake: Lake, folder: Path, made: dict[Split, Any], tmp_path: Path) -> None:
    linked = relink(folder, lake, tmp_path)
    assert {entry.path for entry in linked.manifest.files} | {MANIFEST} == lakes.tree(tmp_path).keys()
    for split, documents in made.items():
        table = pq.read_table(tmp_path / "relinked" / split)
        check_schema(table.schema, RELINKED_SCHEMA, where=str(split))
        rows = {row.pop("id"): row for row in table.to_pylist()}
        links: dict[str, set[tuple[int, int]]] = {key: set() for key in rows}
        for row in pq.read_table(tmp_path / "links" / split).to_pylist():
            links[row["document"]].add((row["sentence"], row["image"]))
        assert len(rows) == len(documents.documents)
        for document in documents.documents:
            found = rows[document.id]
            assert pairs(found.pop("predicted_links")) == links[document.id]
            assert found | {"id": document.id} == to_row(document)


def test_agreement(lake: Lake, folder: Path, tmp_path: Path) -> None:
    linked = relink(folder, lake, tmp_path / "out")
    agreement = compare_links(linked, Linker(model=LinkModel.load(folder), uri="x"), lake).agreement
    rows = pq.read_table(tmp_path / "out" / "relinked").to_pylist()
    both = [row for row in rows if row["given_links"] is not None]
    given, predicted, true = (
        [pairs(row[name]) for row in both] for name in ("given_links", "predicted_links", "links")
    )
    assert (agreement.documents, agreement.judged, len(both)) == (72, len(rows), 72)
    assert agreement.same == sum(len(a & b) for a, b in zip(given, predicted, strict=True)) > 20
    assert agreement.true_given == sum(len(a & b) for a, b in zip(given, true, strict=True))
    assert agreement.true_predicted == sum(len(pairs(row["predicted_links"]) & pairs(row["links"])) for row in rows)
    assert agreement.images == sum(
        len({image for _, image in a} & {image for _, image in b}) for a, b in zip(given, predicted, strict=True)
    )
    told = agreement.to_json()
    assert told["given_recall"] == agreement.true_given / sum(map(len, true))
    assert told["agreement"] == agreement.same_sentence / agreement.images
    assert told["predicted_precision"] > told["given_precision"]  # it finds the links; half of the given are false
    heads, links, same, *_ = agreement.lines()
    assert heads.split() == ["72", "documents", "that", "came", "with", "links", "given", "predicted"]
    assert links.split()[1:] == [str(agreement.given), str(agreement.predicted)]
    assert same.split()[-2:] == [f"{agreement.same / count:.1%}" for count in (agreement.given, agreement.predicted)]


def test_without_given_links_the_predicted_ones_are_still_judged_by_known_ones() -> None:
    row = {"given_links": None, "predicted_links": [{"sentence": 0, "image": 0}, {"sentence": 1, "image": 1}]}
    known = agreement_of(row | {"links": [{"sentence": 0, "image": 0}, {"sentence": 1, "image": 2}]})
    assert (known.documents, known.judged, known.to_json()["predicted_precision"]) == (0, 1, 0.5)
    assert known.lines()[-2].split()[-2:] == ["–", "50.0%"]
    assert agreement_of(row | {"links": None}) == Agreement()


def test_without_given_links_there_is_nothing_to_compare(folder: Path, tmp_path: Path) -> None:
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(test=9))
    linked = relink(folder, lake, tmp_path / "out")
    agreement = compare_links(linked, Linker(model=LinkModel.load(folder), uri="x"), lake).agreement
    assert (agreement.documents, agreement.to_json()["agreement"]) == (0, None)
    assert len(Agreement().lines()) == 1 and "came with links" in agreement.lines()[0]


def test_a_killed_relinking_goes_on_where_it_was(lake: Lake, folder: Path, tmp_path: Path) -> None:
    ended = run_code(KILLED, lake.root.uri, folder, tmp_path / "killed", folder=tmp_path)
    assert ended.status == -signal.SIGKILL
    before = lakes.tree(tmp_path / "killed")
    assert sorted(name.partition("/")[0] for name in before) == [
        "documents",
        "documents",
        "links",
        "relinked",
        "relinked",
    ]
    first = min(name for name in before if name.startswith("links/"))
    changed = (tmp_path / "killed" / first).stat().st_mtime_ns
    linked = relink(folder, lake, tmp_path / "killed")
    assert (linked.reused, linked.shards) == (1, 9)
    assert (tmp_path / "killed" / first).stat().st_mtime_ns == changed
    relink(folder, lake, tmp_path / "undisturbed")
    assert lakes.tree(tmp_path / "killed") == lakes.tree(tmp_path / "undisturbed")


def test_links_alone_are_no_relinking(lake: Lake, folder: Path, tmp_path: Path) -> None:
    model = LinkModel.load(folder)
    linking = prepare_linking(linker_of(model), lake, "synthetic", output=Folder(str(tmp_path)))
    link_version(model, linking, say=lambda line: None)
    assert relink(folder, lake, tmp_path).reused == 0
    assert relink(folder, lake, tmp_path).reused == 9


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        pytest.param([[0.9, 0.8], [0.85, 0.1]], [(1, 0), (0, 1)], id="the best assignment, not each row's best"),
        pytest.param([[0.5, -0.1], [0.4, -0.9]], [(0, 0)], id="none below zero"),
        *(pytest.param(np.zeros(shape), [], id=f"{shape}") for shape in ((0, 3), (3, 0), (0, 0))),
    ],
)
def test_linked_pairs(matrix: list[list[float]], expected: list[tuple[int, int]]) -> None:
    similarities = np.array(matrix, dtype=np.float32)
    rows, columns = by_similarity(similarities, *predicted_pairs(similarities))
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == expected


def test_written_links_have_the_schema(tmp_path: Path) -> None:
    links = [
        PredictedLink("d", 1, 0, 0.5, 1, "m"),
        PredictedLink("e", 0, 2, 0.25, 1, "m", relations=(PredictedRelation("story", 0.75),)),
    ]
    path = tmp_path / "out" / "links.parquet"
    assert write_links(links, path) == 2
    table = pq.read_table(path)
    check_schema(table.schema, LINK_SCHEMA, where="links")
    assert table.to_pylist()[1] == {
        "document": "e",
        "sentence": 0,
        "image": 2,
        "similarity": 0.25,
        "rank": 1,
        "model": "m",
        "probability": None,
        "relations": [{"name": "story", "probability": 0.75}],
        "text": None,
        "source": None,
        "word": None,
    }


def test_the_ending_of_the_file_says_how_links_are_written(tmp_path: Path) -> None:
    told = PredictedLink("e", 0, 2, 0.25, 1, "m", relations=(PredictedRelation("story", 0.75),), text='Käse, "süß"\n')
    for name in ("a.csv", "a.JSONL", "a.parquet"):
        assert write_links([PredictedLink("d", 1, 0, 0.5, 1, "m"), told], tmp_path / name) == 2
    assert write_links([PredictedLink("d", 1, 0, 0.5, 1, "m")], tmp_path / "b.csv") == 1
    wanted = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert [json.loads(line) for line in (tmp_path / "a.JSONL").read_text(encoding="utf-8").splitlines()] == wanted
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["similarity"], first["text"], second["text"]) == ("0.5", "", told.text)
    assert json.loads(second["relations"]) == wanted[1]["relations"]


def test_no_links_give_an_empty_table(tmp_path: Path) -> None:
    assert write_links([], tmp_path / "links.parquet") == 0
    assert pq.read_table(tmp_path / "links.parquet").schema.names == LINK_SCHEMA.names


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "links.parquet"
    write_links([PredictedLink("d", 0, 0, 0.5, 1, "m")], path)
    before = path.read_bytes()

    def broken() -> Iterator[PredictedLink]:
        yield PredictedLink("e", 0, 0, 0.5, 1, "m")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_links(broken(), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["links.parquet"]


def test_what_a_killed_program_left_goes_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / "part-00000-of-00001.parquet"
    (tmp_path / f".{path.name}.0123abcd.tmp").write_bytes(b"half")
    (tmp_path / ".another.parquet.0123abcd.tmp").write_bytes(b"of another file")
    write_links([PredictedLink("d", 0, 0, 0.5, 1, "m")], path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".another.parquet.0123abcd.tmp", path.name]
