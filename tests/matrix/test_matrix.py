"""From files to links in combinations that no other test tries: every two values of any two factors meet in one.

The combinations are generated (allpairspy). Two that need no server and no Ray are in the suite, the others are trials.
What each must give is compared with the plainest way to the same result: one process, a disk, a file of runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import servers
from allpairspy import AllPairs
from files_of import WRITERS, draw_documents
from forked import Outcome, clean_environment, start

from schemas.lake import Lake
from schemas.manifest import read_manifest

FACTORS = {
    "source": list(WRITERS),
    "shards": ["one", "several"],
    "pictures": ["own", "shared"],
    "recipe": ["closed-form", "tiny", "hessel-2019"],
    "lake": ["disk", "s3"],
    "runs": ["file", "server"],
    "time": ["first", "second", "after a promotion"],
    "workers": [1, 2],
}
DOCUMENTS = 90
SETTINGS = {
    "closed-form": ["dimensions=16", "objective.passes=2"],
    "tiny": ["dimensions=16", "training.epochs=30", "training.learning_rate=0.01"],
    "hessel-2019": ["dimensions=16", "text.word_dimensions=16", "training.epochs=60", "training.learning_rate=0.005"],
}
A_BATCH_EACH = ["training.batches_per_step=2", "training.rate_scaling=square-root"]  # of two workers
LEARNED = {"closed-form": 70, "tiny": 70, "hessel-2019": 60}  # AUC; the GRU starts without a word, from 45 documents
POLICY = "min_documents = 5\nmargin = 100.0\n"


@dataclass(frozen=True, slots=True)
class Case:
    source: str
    shards: str
    pictures: str
    recipe: str
    lake: str
    runs: str
    time: str
    workers: int

    @property
    def name(self) -> str:
        return "-".join(str(getattr(self, each.name)).replace(" ", "_") for each in fields(self))


CASES = [Case(*values) for values in AllPairs(list(FACTORS.values()))]
AND_TRIED = [
    Case("interleaved", "several", "shared", "tiny", "disk", "file", "second", 1),
    Case("mmc4", "several", "shared", "closed-form", "disk", "file", "after a promotion", 1),
]


@dataclass(frozen=True, slots=True)
class Job:
    """The commands of one combination."""

    case: Case
    folder: Path
    lake: str
    tracking: str

    def run(self, *arguments: object, status: int = 0) -> dict[str, Any]:
        outcome: Outcome = start(
            *map(str, arguments), "--json", folder=self.folder, environment=clean_environment()
        ).finish()
        assert outcome.status == status, f"{arguments}: {outcome.err}"
        return outcome.json

    def build(self, count: int, *, name: str = "matrix", source: str = "") -> dict[str, Any]:
        """Build a data set of so many documents, by default in the form of the case's source."""
        case, written = self.case, self.folder / f"{name}-{count}"
        written.mkdir(exist_ok=True)
        source = source or case.source
        files = WRITERS[source](draw_documents(count, are_shared=case.pictures == "shared"), written)
        shards = f"shards.documents={8 if case.shards == 'several' else 256}"
        settings = [
            f"source.documents={files}", shards, f"dataset={name}", "dedupe.policy=keep-all",
            "features.images=colour-shape", "splits.val=0.3", "splits.test=0.2",
        ]  # fmt: skip
        given = [text for each in settings for text in ("--set", each)]
        return self.run("build", source, "--lake", self.lake, "--workers", case.workers, *given)

    def train(self, *options: str) -> dict[str, Any]:
        case = self.case
        settings = SETTINGS[case.recipe] + (A_BATCH_EACH if case.workers > 1 and case.recipe != "closed-form" else [])
        given = [text for each in settings for text in ("--set", each)]
        stored = ("--lake", self.lake, "--tracking-uri", self.tracking)
        found = ("--dataset", "matrix", "--recipe", case.recipe, "--workers", case.workers)
        return self.run("train", *found, *given, *stored, "--no-report", *options)


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    case: Case = request.param
    with ExitStack() as stack:
        lake, tracking = str(tmp_path / "lake"), f"sqlite:///{tmp_path}/mlflow.db"
        if case.lake == "s3":
            lake = f"s3://lake/matrix?{request.getfixturevalue('object_store')}"
        if case.runs == "server":
            template = request.getfixturevalue("template")
            tracking, _ = stack.enter_context(servers.mlflow_server(tmp_path, template))
        yield Job(case, tmp_path, lake, tracking)


@pytest.mark.trial
@pytest.mark.parametrize("job", [pytest.param(case, id=case.name) for case in (*CASES, *AND_TRIED)], indirect=True)
def test_from_files_to_links(job: Job, tmp_path: Path) -> None:
    case, stored = job.case, ("--tracking-uri", job.tracking)
    built = job.build(DOCUMENTS)
    check_version(job, built, DOCUMENTS)
    trained = job.train()
    if case.time == "second":
        assert job.build(DOCUMENTS)["version"] == built["version"]
        again = job.train("--reuse")
        assert again["model_uri"] == trained["model_uri"]
    gold = f"gold@{job.build(DOCUMENTS, name='gold', source='documents')['version']}"  # corpora know no true links
    champion = trained["model_uri"]
    if case.time == "after a promotion":
        (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
        promote = ("promote", "--model", trained["model"], "--policy", tmp_path / "policy.toml", "--dataset", gold)
        assert job.run(*promote, "--version", "challenger", *stored)["is_promoted"]
        built = job.build(DOCUMENTS + 20)
        check_version(job, built, DOCUMENTS + 20)
        trained = job.train()
        assert trained["version"] == "2"
        assert job.run(*promote, "--version", "challenger", *stored)["is_promoted"]
        shown = job.run("promotions", trained["model"], *stored)
        assert [row["version"] for row in shown["promotions"]] == ["1", "2"]
        champion = f"models:/{trained['model']}@champion"
    check_links(job, built, champion)
    scores = job.run("evaluate", "--model", champion, "--dataset", gold, "--lake", job.lake, *stored)
    assert scores["auc"]["mean"] > LEARNED[case.recipe]


def check_version(job: Job, built: dict[str, Any], count: int) -> None:
    """Compare a version with the documents that were written."""
    documents = draw_documents(count, are_shared=job.case.pictures == "shared")
    manifest, folder = read_manifest(Lake.at(job.lake), f"matrix@{built['version']}")
    parts = [entry for split in manifest.splits for entry in manifest.parts("documents", split)]
    assert (len(parts) > len(manifest.splits)) == (job.case.shards == "several")
    rows = [row for entry in parts for row in pq.read_table(folder.open(entry.path)).to_pylist()]
    found = sorted((tuple(each["text"] for each in row["sentences"]), len(row["images"])) for row in rows)
    assert found == sorted((each.sentences, len(each.pictures)) for each in documents)
    different = {data for each in documents for data in each.pictures}
    assert len({image["hash"] for row in rows for image in row["images"]}) == len(different)


def check_links(job: Job, built: dict[str, Any], model: str) -> None:
    """Link the version, here and by its workers, and compare; index it and search."""
    stored = ("--lake", job.lake, "--tracking-uri", job.tracking)
    reference = f"matrix@{built['version']}"
    tables = []
    for workers in sorted({1, job.case.workers}):
        folder = job.folder / f"by-{workers}"
        job.run("link", "--model", model, "--dataset", reference, "--output", folder, "--workers", workers, *stored)
        files = sorted(folder.rglob("part-*.parquet")) or sorted(folder.rglob("*.parquet"))
        tables.append({str(path.relative_to(folder)): path.read_bytes() for path in files})
    assert tables[0] and tables[0] == tables[-1]
    index = job.run("index", "--model", model, "--dataset", reference, "--workers", job.case.workers, *stored)
    documents = sum(split["documents"] for split in built["splits"].values())
    shared = job.case.pictures == "shared"
    different = {data for each in draw_documents(documents, are_shared=shared) for data in each.pictures}
    assert index["images"] == len(different)
    found = job.run("search", "--index", index["path"], "--caption", "Paint the board red.", "--language", "en")
    assert len(found["images"]) == min(20, len(different))
