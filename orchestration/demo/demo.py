"""The main job on recorded input, end to end: scrape, build, train, evaluate, promote, link - and what to open next.

The steps are those that Dagster takes, with the same checks. A step that finds its result reports that and does not
repeat it.

`newsroom` is the same for news: articles of the recorded web, a model of their texts, and an index that the pages
search. The model is the closed form. Among all 360 pictures the texts of 78 test articles find theirs at a mean
reciprocal rank of 46, where words have 9 (one run).
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from orchestration.config import NOSTRUCT, BeamSettings, DatasetSettings, Settings
from orchestration.demo.processes import AT_ONCE, Processes, processes
from orchestration.demo.recorded_web import recorded_news, recording_at, scraping
from orchestration.plan import Plan
from orchestration.project import remember, workspace_key
from orchestration.steps import Step, summary_of
from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import GateError, Say

DATASET, RECIPE = "diy", "tiny"
OWN = "closed form"
# In the order of training: the last is trained beside all that follows with the other two.
OBJECTIVES = {"NoStruct": NOSTRUCT, OWN: "closed-form", "AP": "cross-document"}
LINKED_DOCUMENTS = 8
NEWS, NEWS_OBJECTIVE = "news", "closed-form"


def main_job(home: Path, *, workers: int, say: Say) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Scrape, build, train, evaluate, promote and link in a folder, and yield the scores and what to open next.

    Raises:
        GateError: the model is not shown to beat random.
    """
    dataset = DatasetSettings(name=DATASET, train_recipe=RECIPE)
    settings = Settings(
        lake=str(home / "lake"),
        tracking_uri=f"sqlite:///{home / 'mlflow.db'}",
        datasets=(dataset,),
        beam=BeamSettings(workers=workers),
    )
    web, key = recording_at(), workspace_key(home)
    with ThreadPoolExecutor(AT_ONCE) as threads, processes() as started:
        try:
            yield from _steps(home, settings, started, threads, say, web=web, key=key)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


def _steps(
    home: Path, settings: Settings, started: Processes, threads: ThreadPoolExecutor, say: Say, *, web: Path, key: str
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Do the steps of the main job; all but the build are processes."""
    (dataset,), plan = settings.datasets, Plan(settings=settings)

    def do(step: Callable[..., Step], *given: Any, say: Say = say, **named: Any) -> dict[str, Any]:
        return started.call(partial(_done, partial(step, *given, **named)), say, title=step.__name__)

    say(f"1/5 build: scraping the recorded web and building the data set {DATASET}")
    with scraping(web) as addresses:
        build = summary_of(plan.build(dataset, addresses), say)
    reference = f"{DATASET}@{build['version']}"
    splits = ", ".join(f"{name} {row['documents']}" for name, row in build["splits"].items())
    say(f"{'reused: ' if build['reused'] else ''}{reference}: {splits} documents")

    def train(title: str) -> dict[str, Any]:
        say(f"2/5 train: {title}, recipe {dataset.recipe_of(OBJECTIVES[title])}, on {reference}")
        return do(plan.train, dataset, build["version"], OBJECTIVES[title], say=named(title, say))

    def train_and_score(title: str) -> tuple[dict[str, Any], dict[str, Any]]:
        model = train(title)
        return model, do(plan.evaluate, model["model_uri"], reference)

    *first, last = OBJECTIVES
    trained, beside_trained = [threads.submit(train, title) for title in first], threads.submit(train_and_score, last)
    models = {title: each.result() for title, each in zip(first, trained, strict=True)}
    own = models[OWN]
    say(f"3/5 evaluate: {own['model_uri']}, NoStruct and random beside it")
    scores = do(plan.evaluate, own["model_uri"], reference, report=str(home / "report"))
    say(f"4/5 promote: {own['model']} version {own['version']}")
    promotion = do(plan.promote, own["model"], own["version"])
    for reason in promotion["reasons"]:
        say(reason)
    page = _link(settings, reference, f"models:/{own['model']}@champion", home / "linked", started=started, say=say)
    say(f"5/5 link: every document of {reference}, and an index of its pictures")
    champion = own["version"] if promotion["is_promoted"] else plan.champion(own["model"])
    links, index = (do(step, own["model"], reference, champion) if champion else {} for step in (plan.link, plan.index))
    models[last], beside = beside_trained.result()
    remember(home, Path.cwd(), lake=settings.lake, tracking_uri=settings.tracking_uri, key=key, say=say)
    values = {
        "build": build,
        "models": models,
        "scores": {OWN: scores, last: beside, "NoStruct": scores["baselines"]["nostruct"]},
        "promotion": promotion,
        "report": scores["report"],
        "links": str(page),
        "linked_version": links,
        "index": index,
        "tracking_uri": settings.tracking_uri,
    }
    table = started.call(partial(_score_lines, home / "report", beside), say, title="scores")
    yield [*table, *_next_lines(settings, scores["report"], page)], values
    if scores["auc"]["low"] <= scores["random"]["auc"]["high"]:
        raise GateError("the demo's model is not shown to beat random: their 95% intervals overlap")


def _done(make: Callable[[], Step], say: Say) -> dict[str, Any]:
    """Make a step and do it: its process has imported what both need."""
    return summary_of(make(), say)


def _next_lines(settings: Settings, report: str, page: Path) -> list[str]:
    """Return what can be opened after the demo."""
    return [
        "",
        "open next",
        f"  the report            {report}",
        f"                        {_program('multilink')} open report",
        f"  the runs and models   {_program('mlflow')} ui --backend-store-uri {settings.tracking_uri}",
        "                        then http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning",
        f"  the linked documents  {page}",
        f"  the pages             {_program('multilink')} pages",
        "                        then http://127.0.0.1:8090/links",
        f"  a newsroom            {_program('multilink')} demo --news",
    ]


def _program(name: str) -> str:
    """Return a program of this environment as it can be typed in this folder."""
    return os.path.relpath(Path(sys.executable).with_name(name))


def _link(settings: Settings, reference: str, model: str, folder: Path, *, started: Processes, say: Say) -> Path:
    """Link some documents of the test split as a user would: from files, with the promoted model; gives their page."""
    source = export_documents(Lake.at(settings.lake), reference, folder, split=Split.TEST, count=LINKED_DOCUMENTS)
    say(f"5/5 link: {LINKED_DOCUMENTS} documents with {model}, and draw them")
    work = partial(_link_file, model, str(source), folder, settings.tracking_uri)
    return Path(started.call(work, say, title="link"))


def _link_file(model: str, source: str, folder: Path, tracking: str, say: Say) -> Path:
    """Link the documents of a file and draw them; gives their page."""
    from orchestration.inference.documents import link_file

    link_file(model, source, folder / "links.parquet", page=folder, tracking=tracking, say=say)
    return folder / "index.html"


def named(title: str, say: Say) -> Say:
    """Return what says a line with a title before it, as passing as it was."""
    return lambda line: say(type(line)(f"{title}: {line}"))


def _score_lines(report: Path, beside: dict[str, Any], _: Say) -> list[str]:
    """Return the table of an evaluation's scores, with those of AP as its second row.

    What it needs takes seconds to import: it runs in a process that has it.
    """
    from training.evaluation.evaluate import FILE_NAME
    from training.metrics.intervals import Score
    from training.metrics.links import ScoreKind
    from training.report.sections import score_row, score_table

    rows = pq.read_table(report / FILE_NAME, columns=[item.name for item in fields(Score)]).to_pylist()
    table, columns = score_table([Score(**row) for row in rows], OWN), ScoreKind.LINKS.metrics
    if table is None:
        return []
    found = (beside[name] for name in columns)
    cells = {
        name: Score(name, each["mean"], each["low"], each["high"]) for name, each in zip(columns, found, strict=True)
    }
    own, *others = table.rows
    return ["", *replace(table, rows=(own, score_row("AP", cells, columns), *others)).lines()]


def export_documents(lake: Lake, reference: str, folder: Path, *, split: Split, count: int) -> Path:
    """Write the first documents of a split as `documents.jsonl` with picture files beside it, links left out."""
    from pipelines.exports.reading import read_shard, shards_of

    manifest, version = read_manifest(lake, reference)
    documents = (each for shard in shards_of(manifest) if shard.split == split for each in read_shard(shard, version))
    lines: list[str] = []
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for document in islice(documents, count):
        names = [f"pictures/{picture['hash'][:16]}.jpg" for picture in document.pictures]
        for name, picture in zip(names, document.pictures, strict=True):
            (folder / name).write_bytes(picture["jpeg"])
        record = {
            "id": document.row["id"],
            "language": document.row["language"],
            "sentences": [sentence["text"] for sentence in document.row["sentences"]],
            "images": [{"path": name} for name in names],
        }
        lines.append(json.dumps(record, ensure_ascii=False))
    target = folder / "documents.jsonl"
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def newsroom(home: Path, *, workers: int, say: Say) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Build the news, train on them, promote the model, index the pictures, and yield how well they are found."""
    # The gate judges on the validation split, which must not have chosen the pass that is kept.
    dataset = DatasetSettings(name=NEWS, objectives=(NEWS_OBJECTIVE,), train_settings=("training.select=last",))
    settings = Settings(
        lake=str(home / "lake"),
        tracking_uri=f"sqlite:///{home / 'mlflow.db'}",
        datasets=(dataset,),
        beam=BeamSettings(workers=workers),
    )
    web, key = recording_at(), workspace_key(home)
    plan = Plan(settings=settings)
    say(f"1/5 build: the articles and pictures of the recorded news, as the data set {NEWS}")
    with recorded_news(web) as addresses:
        build = summary_of(plan.build(dataset, addresses), say)
    reference = f"{NEWS}@{build['version']}"
    say(f"2/5 train: headline, lead, caption and body, recipe {dataset.recipe_of(NEWS_OBJECTIVE)}, on {reference}")
    model = summary_of(plan.train(dataset, build["version"], NEWS_OBJECTIVE), say)
    say(f"3/5 promote: {model['model']} version {model['version']}")
    promotion = summary_of(plan.promote(model["model"], model["version"]), say)
    for reason in promotion["reasons"]:
        say(reason)
    say(f"4/5 index: the pictures, by {model['model_uri']}")
    index = summary_of(plan.index(model["model"], reference, model["version"]), say)
    say("5/5 evaluate-search: how well texts of the test split find their pictures")
    from newsroom.search.evaluate import score_lines
    from orchestration.workflows.search_evaluation import evaluate_archive

    report, queries = evaluate_archive(index["path"], Lake.at(settings.lake), Split.TEST, (), output=None)
    remember(home, Path.cwd(), lake=settings.lake, tracking_uri=settings.tracking_uri, key=key, say=say)
    yield (
        [
            *score_lines(replace(report, rows=tuple(row for row in report.rows if row.group.startswith("role=all,")))),
            "",
            "open next",
            f"  the newsroom          {_program('multilink')} pages",
            "                        then http://127.0.0.1:8090: open an article of the data set, or paste one",
        ],
        {
            "build": build,
            "model": model,
            "promotion": promotion,
            "index": index,
            "search": {"queries": queries, "scores": report.values()},
            "tracking_uri": settings.tracking_uri,
        },
    )
