"""A newsroom in small: the news of the recorded web, a model of four sources, and an index that the pages search.

It is a command of its own because its training takes longer than the whole main job.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestration.config import BeamSettings, DatasetSettings, Settings
from orchestration.demo.recorded_web import recorded_news, recording_at
from orchestration.project import remember
from orchestration.steps import Steps, in_process
from schemas.console import Say

DATASET, OBJECTIVE = "news", "triplet-sum"
RECIPE = "tiny-liu-2020-multi-source"
# Found among the first 10 of the 78 test pictures: 52.6% of all four texts; by chance 12.8% (DECISIONS.md).
TRAINING = (
    "training.epochs=20",
    "training.learning_rate=2e-3",
    "training.schedule.name=constant",
    "image.standardise=true",
)


def newsroom(home: Path, *, workers: int, say: Say) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Build the news, train on them, index their pictures, and yield how well they are found and what to open next."""
    dataset = DatasetSettings(name=DATASET, objectives=(OBJECTIVE,), train_recipe=RECIPE, train_settings=TRAINING)
    settings = Settings(
        lake=str(home / "lake"),
        tracking_uri=f"sqlite:///{home / 'mlflow.db'}",
        datasets=(dataset,),
        beam=BeamSettings(workers=workers),
    )
    steps = Steps(settings=settings)
    say(f"1/4 build: the articles and pictures of the recorded news, as the data set {DATASET}")
    with recorded_news(recording_at()) as addresses:
        build = steps.build(dataset, addresses, say=say)
    reference = f"{DATASET}@{build['version']}"
    say(f"2/4 train: headline, lead, caption and body fused, recipe {RECIPE}, on {reference}")
    model = steps.train(dataset, build["version"], OBJECTIVE, say=say)
    where = ("--lake", settings.lake, "--tracking-uri", settings.tracking_uri)
    say(f"3/4 index: the pictures, by {model['model_uri']}")
    index = in_process(["index", "--model", model["model_uri"], "--dataset", reference, *where, "--json"], say)
    say("4/4 evaluate-search: how well texts of the test split find their pictures")
    found = in_process(["evaluate-search", "--index", index["path"], *where, "--json"], say)
    remember(home, Path.cwd(), lake=settings.lake, tracking_uri=settings.tracking_uri, say=say)
    yield (
        [
            *score_lines(found["scores"]),
            "",
            "open next",
            "  the newsroom          .venv/bin/multilink pages",
            "                        then open an article of the data set, or paste one",
        ],
        {"build": build, "model": model, "index": index, "search": found, "tracking_uri": settings.tracking_uri},
    )


def score_lines(scores: dict[str, float]) -> list[str]:
    """Return MRR and recall at 10 of each system, for all texts of an article together."""
    lines = []
    for system in ("search", "bm25", "nearest sentence", "fusion"):
        own = {name: value for name, value in scores.items() if name.startswith(f"{system} ") and "role=all," in name}
        mrr = next((value for name, value in own.items() if " reciprocal_rank " in name), None)
        recall = next((value for name, value in own.items() if " recall_at_10 " in name), None)
        if mrr is not None and recall is not None:
            lines.append(f"{system:17} MRR {mrr:5.1f}   R@10 {recall:5.1f}")
    return lines
