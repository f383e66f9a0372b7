"""One command for everything: exit statuses, one clear line for a mistake, and JSON as the last line."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer
from coloured_shapes import write_documents
from forked import clean_environment, start
from released import write_released

from orchestration.cli import run
from orchestration.interrupts import note_interrupt
from schemas.messages import BuildError

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "No such command 'trian'"),
        (
            ["build", "diyy", "--lake", "lake"],
            "unknown data set 'diyy'; did you mean 'diy'? data sets: archive, cite, clue, dii-stress, diy, ",
        ),
        (["build", "diy", "--lake", "lake"], "source.dump: expected the path of a file"),
        (["build", "diy", "--lake", "lake", "--set", "dedupe.radus=2"], "did you mean 'dedupe.radius'?"),
        (["build", "diy", "--lake", "lake", "--set", "dedupe.radius=many"], "dedupe.radius = 'many': expected `int`"),
        (["build", "diy", "--lake", "lake", "--wrkers", "2"], "No such option"),
        (["build", "diy", "--lake", "lake", "--set", "source.dump=no.zst"], "source.dump = 'no.zst': no such file"),
        (
            ["build", "documents", "--lake", "lake", "--runner", "magic"],
            "'magic' is not one of 'local', 'portable', 'flink'",
        ),
        (["build", "diy", "--lake", "lake", "--set", "source.kind=api"], "REDDIT_CLIENT_ID"),
        (["datasets", "show", "diy", "--lake", "lake"], "no folder is there"),
        (["train", "--lake", "lake"], "--dataset: expected NAME"),
        (["train", "--lake", "lake", "--device", "cuda"], "--device; here it is --set training.device=cuda"),
        (["build", "diy", "--lake", "lake", "--seed", "3"], "No such option: --seed (Possible"),
        (["train", "--lake", "lake", "--batch-size", "8"], "here it is --set training.negative_documents="),
        (["train"], "'MULTILINK_LAKE'). Name it, or call the command in a folder with a multilink.toml"),
        (
            ["link", "--dataset", "x", "--lake", "x", "--output", "x", "--precision", "9"],
            "should be less than or equal to 1",
        ),
        (["settings", "tiny", "--set", "objective.similrity=ap"], "'objective.similarity'"),
        (
            ["settings", "tiny", "--set", "objective.similarity=xx"],
            "expected one of ap, dc, tk",
        ),
        (["evaluate"], "evaluate: expected --model, --dataset, --lake as well"),
        (["evaluate", "--scores", "none.jsonl"], "none.jsonl"),
        (["promote", "--model", "nobody", "--version", "1"], "nobody"),
        (["link", "--model", "models:/x/1", "--input", "none.jsonl", "--output", "o.parquet"], "no such file"),
        (["link", "--model", "models:/x/1", "--output", "links"], "either --input PATH or --dataset NAME"),
        (["link", "--dataset", "diy", "--lake", "lake", "--output", "links"], "no folder is there"),
        (["serve", "--model", "nobody"], "--model nobody: no such folder"),
    ],
)
def test_a_mistake_is_one_clear_line_and_status_2(within: Run, arguments: list[str], words: str) -> None:
    outcome = within(*arguments)
    assert (outcome.status, outcome.out) == (2, ""), outcome
    (line,) = [line for line in outcome.err.splitlines() if not line.startswith("[")]
    assert line.startswith("multilink: ") and words in line


@pytest.mark.parametrize("group", [[], ["datasets"], ["lake"]])
def test_a_group_without_a_command_shows_its_help(within: Run, group: list[str]) -> None:
    outcome = within(*group)
    assert outcome.status == 2 and "\n  --help" in outcome.err
    assert outcome.err.startswith(f"Usage: {' '.join(['multilink', *group])} ")


def test_the_version_is_told(within: Run) -> None:
    outcome = within("--version")
    assert (outcome.status, outcome.out) == (0, f"multilink {version('multilink-pipeline')}\n")


def test_scores_of_a_file_are_those_worked_by_hand(within: Run, tmp_path: Path) -> None:
    documents = [
        {"id": "a", "scores": [[0.9, 0.1], [0.2, 0.3]], "links": [[0, 0], [1, 1]]},  # every linked pair above the rest
        {"id": "b", "scores": [[0.1, 0.9], [0.5, 0.2]], "links": [[0, 0]]},  # the linked pair is the last of four
        {"id": "c", "scores": [[0.4, 0.4]], "links": [[0, 1]]},  # a tie: half a pair, half a hit
        {"id": "d", "scores": [[0.4, 0.4]], "links": []},  # nothing to find: left out
    ]
    path = tmp_path / "scores.jsonl"
    path.write_text("\n".join(json.dumps(document) for document in documents), encoding="utf-8")
    values = within("evaluate", "--scores", path, "--json").json
    means = {"auc": (100 + 0 + 50) / 3, "precision_at_1": (100 + 0 + 50) / 3, "precision_at_5": (50 + 25 + 50) / 3}
    assert values["documents"] == 3 and {name: values[name]["mean"] for name in means} == pytest.approx(means)
    for name in means:
        assert values[name]["low"] <= values[name]["mean"] <= values[name]["high"]


@pytest.mark.slow
@pytest.mark.usefixtures("empty_store")
def test_from_documents_to_links(within: Run, tmp_path: Path) -> None:
    source = write_documents(tmp_path / "own", extra=('{"id": "broken',))
    settings = ("--set", f"source.documents={source}", "--set", "features.images=colour-shape")
    built = within("build", "documents", *settings, "--lake", "lake", "--json").check()
    assert sum(split["documents"] for split in built.json["splits"].values()) == 24
    assert built.json["failures"] == {"broken-record": 1}
    reference = f"documents@{built.json['version']}"

    assert within("datasets", "list", "--lake", "lake").out == f"{reference} *\n"
    assert "broken-record" in within("datasets", "show", "documents", "--lake", "lake").out
    assert within("datasets", "verify", reference, "--deep", "--lake", "lake", "--json").json["intact"] is True
    other = within("build", "documents", *settings, "--set", "splits.seed=1", "--lake", "lake", "--json")
    assert "config.splits.seed: 0 -> 1" in within("datasets", "diff", reference, "documents", "--lake", "lake").out

    check_links_of_a_file(within, tmp_path, source, check_training(within, tmp_path, reference))
    part = Path(other.json["path"]) / "documents" / "train" / "part-00000-of-00001.parquet"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    verified = within("datasets", "verify", "documents", "--deep", "--lake", "lake", "--json")
    assert (verified.status, verified.json["intact"], len(verified.json["problems"])) == (1, False, 1)


def check_training(within: Run, tmp_path: Path, reference: str) -> str:
    """Train and evaluate a model, and look whether it would be promoted; return its address."""
    trained = within(
        *("train", "--dataset", reference, "--recipe", "tiny", "--lake", "lake", "--no-report", "--json"),
        *("--set", "training.epochs=2", "--set", "dimensions=64", "--set", "objective.similarity=dc"),
    ).check()
    values = trained.json
    assert {"run_id", "best_epoch", "best_validation_loss"} <= values.keys()
    assert (values["model"], values["epochs"]) == ("multilink-documents-cross-document", 2)

    model = f"models:/{values['model']}/{values['version']}"
    assert f"multilink evaluate --model {model} --dataset {reference} --lake lake\n" in trained.out
    # Links of a file have words once the model is evaluated.
    where = ("--dataset", reference, "--split", "train", "--lake", "lake", "--report", "report")
    within("evaluate", "--model", model, *where).check()
    assert "<svg" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    dry = within("promote", "--model", values["model"], "--version", values["version"], "--dry-run", "--json")
    assert dry.json["is_dry_run"] is True
    return model


def check_links_of_a_file(within: Run, tmp_path: Path, source: Path, model: str) -> None:
    """Link the documents of a file, with a page."""
    files = ("--input", source, "--output", "links.parquet", "--page", "page", "--no-fit")
    linked = within("link", "--model", model, *files, "--json").check()
    assert (linked.json["documents"], linked.json["failures"]) == (24, {"broken-record": 1})
    rows = pq.read_table(tmp_path / "links.parquet").to_pylist()
    own = {record["id"]: record for record in map(json.loads, source.read_text().splitlines()[:24])}
    assert {row["document"] for row in rows} == own.keys()
    for row in rows:
        record = own[row["document"]]
        expected = (record["sentences"][row["sentence"]], record["images"][row["image"]]["path"])
        assert (row["text"], row["source"]) == expected
    page = (tmp_path / linked.json["page"]).read_text(encoding="utf-8")
    assert page.count("data:image/jpeg;base64,") == 24 * 3 and own["d0"]["sentences"][0] in page
    assert len(re.findall(r'class="probability"[^>]*>(?:strong|fair|weak)<', page)) == len(rows)


@pytest.mark.usefixtures("empty_store")
def test_the_released_format_trains_without_any_image_file(within: Run, tmp_path: Path) -> None:
    released = write_released(tmp_path, train=40, val=10, test=10)
    settings = [part for setting in released for part in ("--set", setting)]
    built = within("build", "multi-retrieval", "--lake", "lake", "--json", *settings).check()
    documents = {name: split["documents"] for name, split in built.json["splits"].items()}
    assert (documents, built.json["failures"]) == ({"train": 40, "val": 10, "test": 10}, {})
    small = ("training.epochs=20", "training.learning_rate=3e-3", "dimensions=64", "text.dropout=0", "image.dropout=0")
    trained = within(
        *("train", "--dataset", "multi-retrieval", "--lake", "lake", "--recipe", "hessel-2019", "--json"),
        *(part for setting in (*small, "text.word_dimensions=32") for part in ("--set", setting)),
    ).check()
    model = f"models:/{trained.json['model']}@challenger"
    scores = within("evaluate", "--model", model, "--dataset", "multi-retrieval", "--lake", "lake", "--json").json
    assert scores == trained.json["evaluation"] | {"model": scores["model"]}
    assert len(list(tmp_path.rglob("mlartifacts/**/report/index.html"))) == 2  # of the run, of the version
    (card,) = tmp_path.rglob("mlartifacts/**/model_card.md")
    assert f"| this model | auc | {scores['auc']['mean']:.1f} |" in card.read_text(encoding="utf-8")
    assert scores["documents"] == 10 and scores["auc"]["mean"] > 60  # of ten documents the interval is wide


@pytest.mark.parametrize("after", ["images", pytest.param("documents", marks=pytest.mark.trial)])
def test_a_build_that_is_stopped_says_so_and_the_same_command_goes_on(tmp_path: Path, after: str) -> None:
    """Whatever Beam makes of Ctrl-C: it comes as soon as the folder that builds write is there."""
    path = write_documents(tmp_path / "own", count=60)
    set_ = [f"source.documents={path}", "features.images=", "features.sentences="]
    command = ["build", "documents", "--lake", "lake", *(part for each in set_ for part in ("--set", each))]
    running = start(*command, folder=tmp_path, environment=clean_environment())
    pid, folder = running.process.pid, tmp_path / "lake" / {"images": "images", "documents": "builds"}[after]
    while running.process.is_alive() and not folder.is_dir():
        time.sleep(0.01)
    os.kill(pid, signal.SIGINT)
    stopped = running.finish()
    assert (stopped.status, stopped.err.splitlines()[-1]) == (130, "multilink: stopped; the same command continues")
    assert "Traceback" not in stopped.err and stopped.out == ""
    assert start(*command, folder=tmp_path, environment=clean_environment()).finish().status == 0


def _wrapping(*, is_interrupted: bool) -> typer.Typer:
    """Return a command whose library wraps what ended it, as Beam does."""
    commands = typer.Typer(pretty_exceptions_enable=False)

    @commands.command()
    def build() -> None:
        if is_interrupted:
            with contextlib.suppress(KeyboardInterrupt):
                note_interrupt(signal.SIGINT, None)
        raise RuntimeError("KeyboardInterrupt [while running 'images/fetch']")

    return commands


def test_what_a_library_makes_of_an_interrupt_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([], _wrapping(is_interrupted=True)) == 130
    assert capsys.readouterr().err == "multilink: stopped\n"
    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):  # nobody has pressed a key
        run([], _wrapping(is_interrupted=False))


def heeds_interrupts(pid: int) -> bool:
    """Return whether a process catches SIGTERM, which no interpreter does before the program tells it to."""
    caught = re.search(r"SigCgt:\t(\w+)", Path(f"/proc/{pid}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.slow
def test_ctrl_c_at_any_moment_is_one_line_for_the_whole_process_group(within: Run, tmp_path: Path) -> None:
    """A terminal's Ctrl-C goes to every process of the group; the program starts by itself, as a user's does."""
    settings = [
        "--set",
        f"source.documents={write_documents(tmp_path / 'own')}",
        "--set",
        "features.images=colour-shape",
    ]
    assert within("build", "documents", *settings, "--lake", "lake").status == 0
    command = [sys.executable, "-m", "orchestration", "train", "--dataset", "documents", "--lake", "lake"]
    for is_at_work in (False, True):
        with subprocess.Popen(
            command, cwd=tmp_path, env=clean_environment(), text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            while not heeds_interrupts(process.pid):
                time.sleep(0.001)
            assert process.stderr is not None
            first = process.stderr.readline() if is_at_work else ""  # of progress
            os.killpg(process.pid, signal.SIGINT)
            out, rest = process.communicate(timeout=120)
        told = first + rest
        assert (process.returncode, out) == (130, ""), told
        assert "Traceback" not in told and "Exception" not in told, told
        assert told.splitlines()[-1].startswith("multilink: stopped"), told


def test_an_error_is_json_too_where_that_is_asked_for(within: Run, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    own, documents = tmp_path / "own.jsonl", write_documents(tmp_path / "own", count=2)
    own.touch()
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        (["datasets", "show", "dyi", "--lake", "lake"], "no data set 'dyi'"),
        (["trian"], "No such command 'trian'"),
        (["train", "--wrkers", "2", "--lake", "lake"], "No such option"),
        (["train"], "Missing option '--lake'"),
        (["link", "--input", "none.jsonl", "--output", "o", "--model", "class-names"], "none.jsonl: no such file"),
        (["build", "documents", "--set", f"source.documents={own}", "--lake", f"{own}/lake"], "Not a directory"),
        (["demo", "--workspace", own], "File exists"),
        (["link", "--model", "class-names", "--input", documents, "--output", "/proc/links.parquet"], "/proc/"),
        (["link", "--model", "class-names", "--input", tmp_path / "empty", "--output", "o"], "found no file"),
        (["link", "--model", "class-names", "--input", documents, "--output", documents], "found the input"),
        (["link", "--model", "class-names", "--input", documents, "--output", tmp_path], "or a folder"),
    ):
        failed = within(*arguments, "--json")
        assert failed.status == 2 and words in failed.json["error"] and failed.json["exit_status"] == 2
        assert failed.err.splitlines()[-1] == f"multilink: {failed.json['error']}"


def _raising(problem: Exception) -> typer.Typer:
    commands = typer.Typer(pretty_exceptions_enable=False)

    @commands.command()
    def build(lake: str = "") -> None:
        raise problem

    return commands


@pytest.mark.parametrize(
    ("problem", "status", "words"),
    [
        (FileExistsError(17, "File exists", "lake/datasets"), 2, "File exists: 'lake/datasets'"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (
            BuildError("no document is left:\nbroken-record 1\n   missing-field  1"),
            1,
            "no document is left:\n  broken-record 1\n  missing-field 1",
        ),
    ],
)
def test_an_error_of_a_path_is_a_line_and_a_list_keeps_its_lines(
    problem: Exception, status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--lake", "lake"], _raising(problem)) == status
    assert capsys.readouterr().err == f"multilink: {words}\n"


def test_an_error_of_the_program_is_raised() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        run([], _raising(OSError(9, "Bad file descriptor")))


def test_link_shows_a_sample_of_each_reason(within: Run, tmp_path: Path) -> None:
    path = write_documents(tmp_path / "own", count=2, extra=("[1]", "{}", "[2]"))
    found = within("link", "--model", "class-names", "--input", path, "--output", "o.parquet", "--json")
    assert found.json["failures"] == {"broken-record": 2, "missing-field": 1}
    assert "  broken-record: documents.jsonl:3: $: expected an object, got list" in found.out.splitlines()
    assert found.json["samples"]["missing-field"].startswith("documents.jsonl:4: ")
    (tmp_path / "broken.jsonl").write_text("{\n")
    none = within("link", "--model", "class-names", "--input", "broken.jsonl", "--output", "o.parquet")
    assert none.status == 1 and "broken.jsonl could be linked" in none.err
