"""Does it learn, and does what the papers say help help? Models of every kind on three data sets of recorded pictures.

    python -m benchmarks.learning [--workspace DIR] [--seeds 3] [--quick] [--threads 1] [--out DIR] [--json]

The data sets are those of `learning_data.py`: `posts` (the demo's), `scenes` (in the MSCOCO manner) and `pairs` (with
relations). Each model is trained by the training core in this process, from each seed, with its recipe's settings and
what its line in `MODELS` changes; the last epoch is kept, so that nothing is chosen by what is measured. A score is the
mean over test documents of the mean over seeds; its 95% interval is over documents (bootstrap), `seeds` the lowest and
the highest seed's mean. An expectation compares two models on the same documents by paired bootstrap: `shown` where the
interval of the difference lies above 0, `contradicted` where it lies below, else `not shown` (or `holds`, if at least
as good is all that is expected and it is not negative).

`--out` takes the tables as `learning.md` and `learning.html`; `--workspace` keeps the data sets for the next time.

What was found (AUC; R@10 for pairs; three seeds, unless said otherwise):

    posts    random 51.5, object detection 56.8, NoStruct 65.7, DC 74.2, TK 74.8, AP 75.1, C+I+D 76.7; a transformer
             62.0 without concepts, 68.8 with them (one seed: 6.8 more, 4.5 to 9.2)
    scenes   random 51.3, object detection 58.0, NoStruct 62.1, DC and TK 64.5, AP 60.6, C+I+D 65.9
    pairs    agnostic 49.5, coherence-aware 50.3 (0.9 more, -0.7 to 2.4), with relations shuffled 47.3 (3.0 less, 1.4 to
             4.6), with the paper's weight 47.6

On `posts` every expected order appears, and coherence-aware is at least as good as agnostic. What does not, and what is
known of why:

- scenes, AP above NoStruct (1.4 below, -5.2 to 2.2), DC and TK (2.4 above, -1.2 to 6.0): not shown. In p@1 all three
  are above it (NoStruct 22.0; DC 40.5, AP 27.4). Three reasons were tried and are not it. AP must match sentences and
  pictures that have no partner, half of them here; but with half of k, AP reaches 57.1 and TK 56.8. Forty epochs in
  place of twelve change nothing on validation (60.5 to 60.6, two seeds); the mean of the negatives in place of the
  hardest gives 0.9. What is left, the number of documents (221 for training, versions of one another among them), was
  not tried.
- scenes, DC and TK are one: documents have six sentences and six pictures, so k = 6 takes every maximum.
- pairs, the paper's weight of the relations' loss, 0.1, is below agnostic: nine relations that exclude one another are
  rare, their reciprocal rates sum to about 100, and they cost some 7 at the start, the triplets at most 0.6. The line
  uses 0.01, chosen on validation.
- pairs are the second design, made after the first had shown nothing on its test split: with all 1475 pairs, 43% of
  them of known relations, coherence adds nothing (one seed: 81.8 to agnostic's 82.6; 78.4 with the paper's weight;
  83.4 with relations shuffled): what an album is about is learnt without being told. Read it as: relations help where
  few pairs are labelled, not where there are many.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.learning_data import build_posts
from benchmarks.learning_models import COMPOSED, EXPECTED, FOUR_TIMES, MODELS, PAIRS, POSTS, SCENES, SHUFFLED
from benchmarks.learning_page import Verdict, judged, markdown, page, shown
from benchmarks.learning_pairs import make_pairs
from benchmarks.learning_scenes import build_scenes, compose
from benchmarks.learning_scores import Bench, Data, Kept, Line
from schemas.documents import Split
from schemas.lake import Lake


def make_data(workspace: Path, only: Collection[str]) -> dict[str, Data]:
    """Return the data sets that are needed, by name; all are made of the posts."""
    posts = build_posts(Lake.at(str(workspace / "lake")))
    data: dict[str, Data] = {POSTS: posts}
    if SCENES in only:
        scenes = build_scenes(posts, workspace / "scenes")
        data[SCENES] = scenes
        data |= {name: compose(scenes, workspace / "scenes", times) for name, times in COMPOSED.items()}
    if PAIRS in only:
        pairs = make_pairs(posts)
        data |= {PAIRS: pairs, SHUFFLED: pairs.with_shuffled_relations()}
    return data


def measure(bench: Bench, only: Collection[str], models: Collection[str]) -> Iterator[Line]:
    """Yield the baselines of the sets of documents, then each model as it is trained."""
    for data in (POSTS, SCENES):
        if data in only:
            yield bench.random(data)
            yield from bench.object_detection(data)
    for model in MODELS:
        if model.data.partition(",")[0] not in only or model.title not in models:
            continue
        yield bench.trained(model)
        if (model.data, model.title) == (FOUR_TIMES, "AP") and POSTS in only:
            yield bench.joint_embeddings(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, help="folder of the data sets and scores; temporary unless given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--only", nargs="+", choices=(POSTS, SCENES, PAIRS), help="data sets; all unless given")
    titles = list(dict.fromkeys(model.title for model in MODELS))
    parser.add_argument("--models", nargs="+", choices=titles, metavar="TITLE", help="models; all unless given")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder that the tables are written to")
    parser.add_argument("--json", action="store_true", help="print the figures as the last line")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with contextlib.ExitStack() as stack:
        workspace = options.workspace or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="learning-")))
        only = set(options.only or (POSTS, SCENES, PAIRS))
        models = set(options.models or titles)
        seeds = 1 if options.quick else options.seeds
        run(workspace, seeds=seeds, only=only, models=models, out=options.out, is_json=options.json)


def run(
    workspace: Path, *, seeds: int, only: Collection[str], models: Collection[str], out: Path | None, is_json: bool
) -> None:
    began = time.perf_counter()
    data = make_data(workspace, only)
    sizes = {name: {split: each.size(split) for split in Split} for name, each in data.items()}
    for name, counts in sizes.items():
        print(f"{name}: " + ", ".join(f"{split} {count}" for split, count in counts.items()))
    print(f"built in {time.perf_counter() - began:.0f} s")
    lines: dict[tuple[str, str], Line] = {}
    for line in measure(Bench(data, seeds, Kept.at(workspace / "scores")), only, models):
        lines[line.data, line.title] = line
        cells = "  ".join(map(shown, line.intervals))
        print(f"{line.data:<26}{line.title:<42}{cells}  {line.seconds:.0f} s", flush=True)
    verdicts = [judged(each, lines) for each in EXPECTED if {each.better, each.worse} <= lines.keys()]
    ordered = list(lines.values())
    print(f"\n{markdown(ordered, verdicts)}\n{time.perf_counter() - began:.0f} s in all")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "learning.md").write_text(markdown(ordered, verdicts), encoding="utf-8")
        (out / "learning.html").write_text(page(ordered, verdicts, sizes), encoding="utf-8")
    if is_json:
        print(json.dumps(figures(ordered, verdicts)))


def figures(lines: Sequence[Line], verdicts: Sequence[Verdict]) -> dict[str, object]:
    scores = {f"{line.data}/{line.title}": round(line.intervals[line.judged].mean, 2) for line in lines}
    return {"scores": scores, "expectations": {f"{each.data}: {each.text}": each.result for each in verdicts}}


if __name__ == "__main__":
    main()
