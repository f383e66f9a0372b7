"""Does it learn, and what helps? The closed form and every kind of model of the papers, on recorded pictures.

    python -m benchmarks.learning [--workspace DIR] [--splits 5] [--only posts scenes pairs] [--models TITLE ...]
                                  [--threads 1] [--out DIR] [--json]

The data sets are `posts` (the demo's, `learning_data.py`), `scenes` (in the MSCOCO manner, `learning_scenes.py`), each
picture in one document and in four, and with captions in the order of the pictures; and `pairs` (with relations,
`learning_pairs.py`). Each is divided five times into
training, validation and test documents; each model of `learning_models.py` is trained once on each division, or on the
first two, by the training core, with its recipe's settings and what its line there changes.

`--out` takes the page, `learning.md`; what was found last is docs/explanation/learning.md. `--workspace` keeps the data
sets and the scores of every run (a model on a split): a benchmark that was stopped goes on from there.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.command import parser_of
from benchmarks.learning_data import build_posts
from benchmarks.learning_models import ABOUT, MANY, MODELS, ORDERS, PAIRS, POSTS, SCENES, SHUFFLED, TIMES, Model
from benchmarks.learning_page import page
from benchmarks.learning_pairs import PairsData, make_pairs
from benchmarks.learning_scenes import OrderedScenes, build_scenes, compose
from benchmarks.learning_scores import Data, Kept, Line, Run, baselines, trained
from schemas.documents import Split
from schemas.lake import Lake


def make_data(workspace: Path, split: int, only: Collection[str]) -> dict[str, Data]:
    """Return the data sets that are needed, by name, divided by split number `split`; all are made of the posts."""
    posts = build_posts(Lake.at(str(workspace / "lake")), split)
    data: dict[str, Data] = {POSTS: posts}
    if SCENES in only:
        folder = workspace / f"scenes-{split}"
        scenes = build_scenes(posts, folder)
        data |= {SCENES: scenes, MANY: compose(scenes, folder, TIMES)}
        data |= {name: OrderedScenes(scenes, share) for name, share in ORDERS.items()}
    if PAIRS in only:
        pairs = make_pairs(posts)
        data |= {PAIRS: pairs, SHUFFLED: pairs.with_shuffled_relations()}
    return {name: each for name, each in data.items() if name.partition(",")[0] in only}


def measure(data: dict[str, Data], kept: Kept, models: Collection[str]) -> Iterator[tuple[str, str, Run, Model | None]]:
    """Yield data set, title and run of each baseline and each model on one split."""
    for name, each in data.items():
        if not isinstance(each, PairsData | OrderedScenes):
            yield from ((name, title, run, None) for title, run in baselines(each))
    for model in MODELS:
        if model.data in data and model.title in models and data[model.data].split < model.splits:
            yield model.data, model.title, trained(model, data[model.data], kept), model


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--workspace", type=Path, help="folder of the data sets and scores; temporary unless given")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=(POSTS, SCENES, PAIRS), help="data sets; all unless given")
    titles = list(dict.fromkeys(model.title for model in MODELS))
    parser.add_argument("--models", nargs="+", choices=titles, metavar="TITLE", help="models; all unless given")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder that the page is written to")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with contextlib.ExitStack() as stack:
        workspace = options.workspace or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="learning-")))
        lines, text = run(
            workspace,
            splits=options.splits,
            only=options.only or (POSTS, SCENES, PAIRS),
            models=options.models or titles,
        )
    if options.out is None:
        print(text)
    else:
        (options.out / "learning.md").write_text(text, encoding="utf-8")
    if options.json:
        means = {f"{each.data}: {each.title}": np.mean([*each.by_document.values()], axis=0) for each in lines}
        print(json.dumps({name: values.round(3).tolist() for name, values in means.items()}))


def run(workspace: Path, *, splits: int, only: Collection[str], models: Collection[str]) -> tuple[list[Line], str]:
    """Return what was scored, and the page."""
    began, kept = time.process_time(), Kept.at(workspace / "scores")
    runs: dict[tuple[str, str], list[Run]] = defaultdict(list)
    lines: dict[tuple[str, str], Model | None] = {}
    sizes: dict[str, dict[Split, list[int]]] = {name: {split: [] for split in Split} for name in (*ABOUT, *ORDERS)}
    for number in range(splits):
        data = make_data(workspace, number, only)
        for name, each in data.items():
            for split in Split:
                sizes[name][split].append(each.size(split))
        for name, title, found, model in measure(data, kept, models):
            runs[name, title].append(found)
            lines[name, title] = model
            print(f"{number + 1}/{splits}  {name:<26}{title:<40}{found.seconds:6.1f} s", flush=True)
    trained_s = sum(each.seconds for own in runs.values() for each in own)
    ordered = {key: Line(*key, runs[key], lines[key]) for key in lines}
    print(f"{(time.process_time() - began) / 60:.0f} minutes of a processor now, {trained_s / 60:.0f} in all trainings")
    return [*ordered.values()], page(ordered, sizes, minutes=trained_s / 60)


if __name__ == "__main__":
    main()
