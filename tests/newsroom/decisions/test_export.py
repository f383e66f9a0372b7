"""Decisions made a data set by the project's own build: which links it has, and what is left out."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import Archive
from PIL import Image

from multilink.datasets import open_dataset
from newsroom.decisions.records import Action, Objection
from newsroom.decisions.store import Store
from orchestration.cli import run


def exported(built: Archive, folder: Path, *options: str) -> list[dict[str, Any]]:
    assert run(["decisions", "export", "--lake", built.lake, "--output", str(folder), *options]) == 0
    return [json.loads(line) for line in (folder / "documents.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_choice_is_found_in_the_data_set_that_is_built_of_it(
    built: Archive, log: Store, command: Callable[..., list[str]], tmp_path: Path
) -> None:
    shown = built.shown()
    for action, name, reason in (
        (Action.CHOOSE, "coffee", None),
        (Action.CHOOSE, "rocket", None),
        (Action.WITHDRAW, "coffee", None),
        (Action.REJECT, "cat", Objection.SUBJECT),
        (Action.REJECT, "flower", Objection.RIGHTS),
    ):
        log.decide(built.decision(action, name, reason), shown)
    printed = command(
        "decisions", "export", "--lake", built.lake, "--output", str(tmp_path), "--split", "val", "--json"
    )
    summary = json.loads(printed[-1])
    assert (summary["articles"], summary["links"], summary["pictures"], summary["left_out"]) == (1, 3, 2, {})
    (record,) = [json.loads(line) for line in (tmp_path / "documents.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [each["role"] for each in record["sentences"]] == ["headline", "caption", "body"]
    rocket = {"title": "A rocket", "licence": "CC0-1.0", "credit": "dpa", "keywords": ["k"]}
    path = f"pictures/{built.images['rocket']}.jpg"
    assert record["images"][0] == {"path": path, **rocket} and len(record["images"]) == 2

    assert run([*summary["build"], "--set", "features.images=[]", "--set", "features.sentences=[]"]) == 0
    dataset = open_dataset("decisions", lake=built.lake)
    assert dataset.splits == ["val"]
    (row,) = dataset.table("documents", split="val").to_pylist()
    texts = ["Eine Rakete startet", "Die Rakete über Florida", "Sie flog. Sie kam an."]
    assert (row["language"], [each["text"] for each in row["sentences"]]) == ("de", texts)
    assert [(link["sentence"], link["image"]) for link in row["links"]] == [(0, 0), (1, 0), (2, 0)]
    images = {each["hash"]: each for each in dataset.table("images", split="val").to_pylist()}
    chosen, wrong = (images[each["hash"]] for each in row["images"])
    assert (chosen["metadata"]["title"], chosen["licence"]) == ("A rocket", "CC0-1.0")
    assert wrong["metadata"]["title"] == "A cat"
    archive = open_dataset("archive", lake=built.lake).table("images", split="train").to_pylist()
    archived = {each["hash"]: each["jpeg"] for each in archive}[built.images["rocket"]]
    copies = [np.asarray(Image.open(io.BytesIO(jpeg)), np.float64) for jpeg in (archived, chosen["jpeg"])]
    assert abs(copies[0] - copies[1]).mean() < 2  # the same picture, compressed once more


def test_equal_logs_give_equal_bytes_and_a_shortlist_is_no_choice(built: Archive, log: Store, tmp_path: Path) -> None:
    for number, (action, name) in enumerate(
        [(Action.CHOOSE, "cat"), (Action.SHORTLIST, "cat"), (Action.CHOOSE, "flower")]
    ):
        log.decide(built.decision(action, name), built.shown({"headline": f"Article {number}"}))
    log.decide(built.decision(Action.CHOOSE, "rocket"), built.shown({}))  # found by a picture alone
    records = exported(built, tmp_path / "a")
    assert sorted(each["sentences"][0]["text"] for each in records) == ["Article 0", "Article 2"]
    assert exported(built, tmp_path / "b") == records
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.*")} for name in "ab"]
    assert files[0] == files[1] and len(files[0]) == 3


def test_pairs_are_a_document_for_each_chosen_picture(built: Archive, log: Store, tmp_path: Path) -> None:
    for action, name in ((Action.CHOOSE, "cat"), (Action.CHOOSE, "rocket"), (Action.REJECT, "coffee")):
        log.decide(built.decision(action, name), built.shown())
    records = {record["id"]: record for record in exported(built, tmp_path, "--pairs")}.values()
    shown = sorted([Path(each["path"]).stem for each in record["images"]] for record in records)
    assert shown == sorted([built.images[name]] for name in ("cat", "rocket"))
    assert [record["links"] for record in records] == [[[0, 0], [1, 0], [2, 0]]] * 2


def test_why_something_is_left_out_is_said(
    built: Archive, log: Store, command: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["decisions", "export", "--lake", built.lake, "--output", str(tmp_path)]
    assert run(arguments) == 2
    assert "expected a chosen picture, found none (no decision)" in capsys.readouterr().err
    log.decide(built.decision(Action.SHORTLIST, "cat"), built.shown({"headline": "a"}))
    assert run(arguments) == 2
    assert "no chosen picture: 1" in capsys.readouterr().err
    log.decide(built.decision(Action.CHOOSE, "cat"), built.shown({"headline": "b"}))
    shown = built.shown({"headline": "c"}, dataset="archive@0123456789abcdef")  # swept since: the newest has it
    log.decide(built.decision(Action.CHOOSE, "rocket"), shown)
    counts, left_out, to_build, *_ = command(*arguments)
    assert counts.startswith("2 articles, 2 links, 2 pictures")
    assert left_out == "left out: no chosen picture 1"
    assert to_build.startswith("build it: multilink build documents --lake")
    assert run([*arguments, "--split", "dev"]) == 2


def test_decisions_are_listed(built: Archive, log: Store, command: Callable[..., list[str]]) -> None:
    assert command("decisions", "list", "--lake", built.lake) == ["no decision"]
    shown = built.shown()
    log.decide(built.decision(Action.CHOOSE, "cat", who="Jo", note="n" * 100), shown)
    log.decide(built.decision(Action.REJECT, "rocket", Objection.USED), built.shown({"lead": "other"}))
    lines = command("decisions", "list", "--lake", built.lake, "--article", shown.article[:8])
    assert len(lines) == 3 and lines[-1] == "choose 1" and "Jo" in lines[1] and "n" * 40 in lines[1]
    found = json.loads(command("decisions", "list", "--lake", built.lake, "--json")[-1])["decisions"]
    assert [(each["action"], each["reason"]) for each in found] == [("choose", None), ("reject", "already-used")]
