"""Does it learn, and does what the papers say help help? Models of every kind on three sets of recorded pictures.

    python -m benchmarks.learning [--workspace DIR] [--seeds 5] [--quick] [--threads 1] [--out DIR] [--json]

The data sets are `posts` (the demo's, `learning_data.py`), `scenes` (in the MSCOCO manner, `learning_scenes.py`) and
`pairs` (with relations, `learning_pairs.py`). Each model of `learning_models.py` is trained by the training core in
this process, from each seed, with its recipe's settings and what its line there changes; the last epoch is kept, so
that nothing is chosen by what is measured. A score is the mean over test documents of the mean over seeds; its 95%
interval is over documents (bootstrap), `seeds` the lowest and the highest seed's mean. An expectation compares two
models on the same documents by paired bootstrap: `shown` where the interval of the difference lies above 0,
`contradicted` where it lies below, else `not shown` (or `holds`, if at least as good is all that is expected and it is
not negative).

`--out` takes the tables as `learning.md` and `learning.html`. `--workspace` keeps the data sets and the scores of every
run (a model from a seed): a benchmark that was stopped goes on from there, and `--only`, `--models` do it in parts.

What was found, in one run (AUC, precision at 1, seconds of a processor for a model; of SGD the mean of five seeds; the
closed form has no seed). Nothing was chosen on test documents: regularisation, passes, hubs and the weight of class
names by the rank of own images on validation documents. All lines read one sentence encoder, `use-multilingual`, unless
they say otherwise; `closed form` reads the CNN's vectors and its class names.

                                      posts              scenes          composed 4 times
    random                         50.4  14.4          51.1   5.0
    class names, untrained         68.8  64.8          72.9  58.9
    object detection, K by valid.  56.1  25.9          59.0  17.9
    NoStruct                       66.9  50.7    6 s   66.6  27.9    6 s   76.5  44.3   18 s
    DC                             76.5  82.2    9 s   73.3  53.6    8 s   92.6  92.9   28 s
    TK                             76.8  80.4    9 s   73.3  53.6    9 s   92.6  92.9   26 s
    AP                             78.8  80.7    9 s   70.1  44.3    9 s   91.7  88.9   27 s
    C+I+D (TK)                     78.4  77.0   10 s   76.5  56.4    9 s   93.1  90.0   28 s
    AP, steps                      86.2  88.1   10 s   72.2  43.6    9 s   94.1  88.9   33 s
      all columns                  85.5  87.4   21 s   74.3  47.5   21 s   94.9  89.3   74 s
      all columns, whitened        84.9  87.4   14 s   65.8  36.4   16 s   93.9  90.4   38 s
    closed form, cosines           82.5  79.6    3 s   86.0  75.0    3 s   92.5  91.1    5 s
    closed form, no names          88.6  88.9    2 s   88.5  66.1    2 s   95.3  91.1    4 s
    closed form                    88.5  85.2    3 s   88.1  80.4    3 s   95.2  92.9    5 s
      mirrored                     90.3  94.4    3 s   88.2  82.1    3 s   95.2  92.9    6 s
      and middle layers            89.6  88.9    4 s   88.9  78.6    5 s   95.3  92.9    9 s
      and colours                  89.9  88.9    4 s   87.3  78.6    4 s   95.0  92.9    7 s
      two sentence encoders        88.4  83.3    4 s   89.9  83.9    4 s   96.4  94.6    7 s
      all columns, both encoders   89.9  94.4   11 s   89.9  75.0   11 s   96.0  92.9   19 s
    nearest sentence               99.6  94.8         (captions of posts stand under their pictures)

    closed form less AP         posts 9.8 (7.8 to 11.8); scenes 18.0 (15.5 to 20.4); composed 4 times 3.5 (1.6 to 5.4)
    closed form less AP, steps  posts 2.3 (0.9 to 3.9); scenes 15.9 (13.0 to 18.7); composed 4 times 1.1 (-0.6 to 2.6)
    less its own cosines        posts 6.1 (4.6 to 7.6); scenes 2.1 (1.2 to 3.2); composed 4 times 2.7 (1.5 to 4.0)
    two encoders less one       posts -0.1 (-1.0 to 0.7); scenes 1.7 (0.6 to 2.8); composed 4 times 1.2 (0.4 to 2.2)
    all columns less it         posts 1.4 (-0.2 to 3.0); scenes 1.7 (0.3 to 3.2); composed 4 times 0.8 (-0.2 to 2.0)
    AP, whitened less AP, steps posts -1.3 (-2.6 to -0.1); scenes -6.4 (-9.7 to -3.0); composed -0.2 (-1.7 to 1.1)

Precision at 1 of 54 and 56 documents has intervals of 20 points: columns are not told apart by it. Most of the gain on
posts over AP comes from the steps, on scenes from the closed form. What class names add on scenes is precision at 1
(14.3, -1.8 to 28.6), and no AUC. Whitened columns by gradient were expected to be at least as good as plain ones, and
are not: they fit few documents sooner than they learn from them, so the closed form regularises them and SGD should
have many documents.

Of other models (AUC): on posts Hessel's GRU 74.5; a transformer 66.6 without concepts, 70.7 with them (4.1 more, 2.7 to
5.4); frozen joint vectors of AP on scenes composed 4 times 80.9. On scenes composed twice NoStruct 69.8, DC 85.5, AP
83.0. The orders that the papers lead to expect appear on posts, on scenes and on scenes composed 4 times: structured
objectives above NoStruct, C+I+D at least as good as TK.

On pairs (R@10) coherence does not help: agnostic 53.1, coherence-aware 51.5 (1.6 less, 0.7 to 2.5), with relations
shuffled 51.6, with the paper's weight 23.4. With poorer vectors of texts, in an earlier run, it was 0.9 better (-0.7 to
2.4), and 3.0 better than with relations shuffled.

Earlier, with dropout 0.2, hardest negatives and 12 epochs, DC, TK and AP were not shown to be above NoStruct on scenes
as they are built (62.1 to 64.5). Why they were not, and why settings for few documents matter, was asked then:

Too few training documents. Measured on the validation split (its pictures composed four times into 224
documents; two seeds to 893 documents and one beyond, one elsewhere), and nothing of it on the test split:

- 1,026 training pictures make 171 groups, 146 of them in one version: half of the pictures have one caption, and a
  document has as many versions as the poorest of its three. MSCOCO's make 4,968 groups in five versions. After twelve
  epochs DC knows every training document: its own pictures come first for all 221. It does so without the links, its
  AUC on these very documents is 64.4; on validation documents the own pictures come 20th of 56 in the mean. A document
  seen once can be told from the others in many wrong ways.
- More documents of the same pictures and captions, in other company, take that away:

      training documents   111    221    451    893    1,755
      NoStruct            57.2   60.9   61.2   63.9    66.2
      DC                  60.6   65.0   71.6   83.4    87.4
      AP                  56.6   62.7   66.5   82.9    86.6
      told every link             87.9          88.3

  (Here a picture keeps its half, captioned or not; in `learning_scenes.py` each composition is a draw of its own. Four
  compositions were settled on by this table, before any was scored on the test split.)
- It is the company that counts: four draws of the distractors alone, for the same groups, give DC 71.4, AP 65.0.
- It is not the number of steps: 48 epochs on the 221 documents give DC 63.6, AP 64.0.
- It is not the labels: of 10,989 pairs that are not linked, 17 share a thing that is drawn and named, and who knows all
  drawn things has an AUC of 99.9 or more on every split. Tried earlier: half of k, since half of the sentences
  and pictures have no partner (AP 4 lower, TK 8, on test), and mean negatives for the hardest (0.9 more, validation).

DC and TK are one on scenes: documents have six sentences and six pictures, so k = 6 takes every maximum.

On pairs, the paper's weight of the relations' loss, 0.1, is below agnostic: nine relations that exclude one another are
rare, their reciprocal rates sum to about 100, and they cost some 7 at the start, the triplets at most 0.6. The line
uses 0.01, chosen on validation. And pairs are the second design, made after the first had shown nothing on its test
split: with all 1,475 pairs, 43% of them of known relations, coherence adds nothing (one seed: 81.8 to agnostic's 82.6;
78.4 with the paper's weight; 83.4 with relations shuffled): what an album is about is learnt without being told. Read
it as: relations help where few pairs are labelled, not where there are many.
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
            yield from bench.baselines(data)
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
    parser.add_argument("--seeds", type=int, default=5)
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
        print(f"{line.data:<26}{line.title:<42}{cells}  {line.seconds_a_model:.1f} s", flush=True)
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
