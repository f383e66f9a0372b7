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
import html
import json
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from benchmarks.learning_data import LakeData, PairsData, build_posts, build_scenes, make_pairs
from schemas.configs import override
from schemas.documents import Split
from schemas.lake import Lake
from training.baselines.joint_embeddings import joint_embedding_scores
from training.baselines.random import random_scores
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.encoders.inputs import image_input, text_input
from training.evaluation.baselines import class_word_vectors, evaluate_object_detection
from training.evaluation.bootstrap import Interval, compare, mean_interval
from training.evaluation.evaluate import similarity_matrices
from training.evaluation.links import Matrix, score_documents
from training.loop.context import SingleProcess
from training.loop.trainer import train
from training.loop.validation import own_set_ranks
from training.model import LinkModel
from training.recipes import recipe
from training.text.word_vectors import PACKAGED

Scores = np.ndarray  # S seeds x D documents x 3 columns, percent
POSTS, SCENES, PAIRS, SHUFFLED = "posts", "scenes", "pairs", "pairs, relations shuffled"
LINK_COLUMNS, RETRIEVAL_COLUMNS = ("AUC", "p@1", "p@5"), ("R@1", "R@5", "R@10")
TRIPLETS = (
    "objective.name=triplet-hardest",
    "objective.margin=0.3",
    "training.negative_documents=31",
    "training.epochs=20",
)
COHERENCE = ("objective.name=coherence-aware", "objective.relation_weight=0.01")
REGIONS = ("training.select=last",)


@dataclass(frozen=True)
class Model:
    """A line of the table: how it is trained, and on what."""

    title: str
    data: str
    recipe: str
    settings: tuple[str, ...] = ()

    def config(self, seed: int) -> TrainConfig:
        return override(recipe(self.recipe), [*self.settings, f"training.seed={seed}", "training.device=cpu"])


def _of(data: str, kept_share: float) -> tuple[Model, ...]:
    both = (f"objective.kept_share={kept_share}", "objective.name=cross+intra+dropout", "objective.similarity=tk")
    return (
        Model("NoStruct", data, "tiny", ("objective.name=nostruct",)),
        Model("DC", data, "tiny", ("objective.similarity=dc",)),
        Model("TK", data, "tiny", ("objective.similarity=tk",)),
        Model("AP", data, "tiny", ("objective.similarity=ap",)),
        Model("C+I+D (TK)", data, "tiny", both),
    )


MODELS = (
    *_of(POSTS, 0.6),
    Model("GRU, AP", POSTS, "tiny-hessel-2019"),
    Model("transformer, no concepts", POSTS, "tiny-li-2022", (*REGIONS, "encoder.concepts=false")),
    Model("transformer, concepts", POSTS, "tiny-li-2022", REGIONS),
    *_of(SCENES, 0.8),
    Model("TK, half of k", SCENES, "tiny", ("objective.similarity=tk", "objective.k=half")),
    Model("AP, half of k", SCENES, "tiny", ("objective.similarity=ap", "objective.k=half")),
    Model("agnostic", PAIRS, "tiny", TRIPLETS),
    Model("coherence-aware", PAIRS, "tiny", (*TRIPLETS, *COHERENCE)),
    Model("coherence-aware, weight 0.1", PAIRS, "tiny", (*TRIPLETS, *COHERENCE[:1])),
    Model("coherence-aware", SHUFFLED, "tiny", (*TRIPLETS, *COHERENCE)),
)


@dataclass(frozen=True)
class Expected:
    """`better` is expected above `worse`, or, where `is_strict` is not set, at least as good."""

    better: tuple[str, str]
    worse: tuple[str, str]
    is_strict: bool = True


def _order(data: str) -> Iterator[Expected]:
    yield Expected((data, "NoStruct"), (data, "random"))
    for title in ("DC", "TK", "AP"):
        yield Expected((data, title), (data, "NoStruct"))
    yield Expected((data, "C+I+D (TK)"), (data, "TK"), is_strict=False)


EXPECTED = (
    *_order(POSTS),
    *_order(SCENES),
    Expected((POSTS, "GRU, AP"), (POSTS, "random")),
    Expected((POSTS, "transformer, concepts"), (POSTS, "transformer, no concepts")),
    Expected((PAIRS, "coherence-aware"), (PAIRS, "agnostic"), is_strict=False),
    Expected((PAIRS, "coherence-aware"), (SHUFFLED, "coherence-aware"), is_strict=False),
)


@dataclass(frozen=True)
class Line:
    """Scores of one model."""

    data: str
    title: str
    scores: Scores
    seconds: float = 0.0

    @property
    def by_document(self) -> np.ndarray:
        return self.scores.mean(axis=0)

    @cached_property
    def intervals(self) -> list[Interval]:
        return [mean_interval(column) for column in self.by_document.T]

    @property
    def seeds(self) -> str:
        means = self.scores[:, :, self.judged].mean(axis=1)
        return "" if len(means) == 1 else f"{means.min():.1f} to {means.max():.1f}"

    @property
    def judged(self) -> int:
        """Return the column that expectations are about: AUC, or R@10."""
        return 0 if self.data in (POSTS, SCENES) else 2


@dataclass(frozen=True)
class Bench:
    data: Mapping[str, LakeData | PairsData]
    seeds: int

    def trained(self, model: Model) -> tuple[Line, LinkModel]:
        """Train a model from every seed; also returns the first seed's."""
        data, began = self.data[model.data], time.perf_counter()
        found = [fit(model.config(seed), data) for seed in range(self.seeds)]
        documents = data.documents(found[0], Split.TEST)
        judge = retrieval_scores if isinstance(data, PairsData) else model_link_scores
        scores = np.stack([judge(each, documents) for each in found])
        return Line(model.data, model.title, scores, time.perf_counter() - began), found[0]

    def random(self, data: str) -> Line:
        test = self.data[data]
        assert isinstance(test, LakeData)
        documents = test.classified(Split.TEST)
        sizes = list(zip(documents.ids, documents.sentence_counts, documents.image_counts, strict=True))
        drawn = [[random_scores(i, n, m, seed=seed) for i, n, m in sizes] for seed in range(self.seeds)]
        return Line(data, "random", np.stack([link_scores(matrices, documents) for matrices in drawn]))

    def object_detection(self, data: str) -> Iterator[Line]:
        """Yield the baseline with K chosen on validation, and with the best K on test (an upper bound)."""
        built = self.data[data]
        assert isinstance(built, LakeData)
        test, validation = built.classified(Split.TEST), built.classified(Split.VAL)
        vectors = class_word_vectors(PACKAGED, test, validation, dimensions=50)
        found = evaluate_object_detection(test, validation, vectors, where=data)
        if found.chosen is not None:
            title = f"object detection, K = {found.chosen_k} by validation"
            yield Line(data, title, link_scores(found.chosen.matrices, test)[None])
        yield Line(
            data, f"object detection, best K on test = {found.best_k}", link_scores(found.best.matrices, test)[None]
        )

    def joint_embeddings(self, model: LinkModel) -> Line:
        """Score the frozen joint vectors of a model of `scenes` on `posts`, whose test pictures it has never seen."""
        documents = self.data[POSTS].documents(model, Split.TEST)
        joint = replace(
            documents,
            sentence_vectors=model.encode_sentences(text_input(documents)),
            image_bank=model.encode_images(image_input(documents)),
        )
        return Line(
            POSTS, "frozen joint embeddings (AP of scenes)", link_scores(joint_embedding_scores(joint), joint)[None]
        )


def fit(config: TrainConfig, data: LakeData | PairsData) -> LinkModel:
    """Return a model trained in this process."""
    with tempfile.TemporaryDirectory(prefix="learning-") as folder:
        result = train(config, data.training(config), SingleProcess(), run_directory=Path(folder))
        return LinkModel.load(result.model)


def model_link_scores(model: LinkModel, documents: DocumentSet) -> Scores:
    return link_scores(list(similarity_matrices(model, documents)), documents)


def link_scores(matrices: Sequence[Matrix], documents: DocumentSet) -> Scores:
    """Return a row (AUC, p@1, p@5) for each document that can be scored."""
    return score_documents(matrices, documents.links or ()).table()


def retrieval_scores(model: LinkModel, pairs: DocumentSet) -> Scores:
    """Return a row (R@1, R@5, R@10) for each pair: its rank among all pairs, the mean of both directions.

    The caption of another picture that reads the same is no negative.
    """
    texts = torch.from_numpy(model.encode_sentences(text_input(pairs)))
    images = torch.from_numpy(model.encode_images(image_input(pairs))[pairs.image_rows])
    number = {text: place for place, text in enumerate(dict.fromkeys(pairs.texts))}
    kinds = torch.tensor([number[text] for text in pairs.texts])
    allowed = kinds[:, None] != kinds[None, :]
    cosines = texts @ images.T
    ranks = torch.stack([own_set_ranks(cosines, allowed), own_set_ranks(cosines.T, allowed)])
    columns = [100.0 * (ranks <= most).double().mean(dim=0) for most in (1, 5, 10)]
    return torch.stack(columns, dim=1).numpy()


@dataclass(frozen=True)
class Verdict:
    text: str
    difference: Interval
    result: str


def judged(expected: Expected, lines: Mapping[tuple[str, str], Line]) -> Verdict:
    better, worse = lines[expected.better], lines[expected.worse]
    column = better.judged
    found = compare(better.by_document[:, column], worse.by_document[:, column]).difference
    if found.high < 0:
        result = "contradicted"
    elif found.low > 0 or (found.mean >= 0 and not expected.is_strict):
        result = "shown" if found.low > 0 else "holds"
    else:
        result = "not shown"
    relation = "above" if expected.is_strict else "at least as good as"
    data = expected.better[0]
    other = expected.worse[1] if expected.worse[0] == data else f"{expected.worse[1]} ({expected.worse[0]})"
    return Verdict(f"{data}: {expected.better[1]} {relation} {other}", found, result)


def shown(interval: Interval) -> str:
    return f"{interval.mean:.1f} ({interval.low:.1f} to {interval.high:.1f})"


Table = list[list[str]]


def score_tables(lines: Sequence[Line]) -> dict[str, Table]:
    """Return a table for each data set, headings first."""
    tables: dict[str, Table] = {}
    for line in lines:
        columns = LINK_COLUMNS if line.data in (POSTS, SCENES) else RETRIEVAL_COLUMNS
        table = tables.setdefault(line.data, [["model", *columns, f"seeds, {columns[line.judged]}"]])
        table.append([line.title, *map(shown, line.intervals), line.seeds])
    return tables


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    rows = [[each.text, shown(each.difference), each.result] for each in verdicts]
    return [["expected", "difference", "found"], *rows]


def markdown(tables: Mapping[str, Table]) -> str:
    parts = []
    for title, (heading, *rows) in tables.items():
        lines = [heading, ["---"] * len(heading), *rows]
        parts.append("\n".join([f"## {title}", "", *("| " + " | ".join(line) + " |" for line in lines)]))
    return "\n\n".join(["# What was learned", *parts]) + "\n"


def page(tables: Mapping[str, Table]) -> str:
    """Return the same tables as a page without scripts or outside files."""
    parts = []
    for title, (heading, *rows) in tables.items():
        cells = ["".join(f"<th>{html.escape(cell)}</th>" for cell in heading)]
        cells += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
        body = "\n".join(f"<tr>{row}</tr>" for row in cells)
        parts.append(f"<h2>{html.escape(title)}</h2>\n<table>\n{body}\n</table>")
    style = "body{font:15px sans-serif;margin:2em}td,th{padding:.2em .9em;text-align:left;border-bottom:1px solid #ccc}"
    head = f'<meta charset="utf-8"><title>What was learned</title><style>{style}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body><h1>What was learned</h1>\n'
        + "\n".join(parts)
        + ("</body></html>\n")
    )


def make_data(workspace: Path, only: Collection[str]) -> dict[str, LakeData | PairsData]:
    """Return the data sets that are needed, by name; all are made of the posts."""
    posts = build_posts(Lake.at(str(workspace / "lake")))
    data: dict[str, LakeData | PairsData] = {POSTS: posts}
    if SCENES in only:
        data[SCENES] = build_scenes(posts, workspace / "scenes")
    if PAIRS in only:
        pairs = make_pairs(posts)
        data |= {PAIRS: pairs, SHUFFLED: pairs.with_shuffled_relations()}
    return data


def measure(bench: Bench, only: Collection[str]) -> Iterator[Line]:
    """Yield the baselines of the sets of documents, then each model as it is trained."""
    for data in (POSTS, SCENES):
        if data in only:
            yield bench.random(data)
            yield from bench.object_detection(data)
    for model in MODELS:
        if model.data.partition(",")[0] not in only:
            continue
        line, first = bench.trained(model)
        yield line
        if (model.data, model.title) == (SCENES, "AP") and POSTS in only:
            yield bench.joint_embeddings(first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, help="folder of the data sets; a temporary one unless given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--only", nargs="+", choices=(POSTS, SCENES, PAIRS), help="data sets; all unless given")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder that the tables are written to")
    parser.add_argument("--json", action="store_true", help="print the figures as the last line")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with contextlib.ExitStack() as stack:
        workspace = options.workspace or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="learning-")))
        only = set(options.only or (POSTS, SCENES, PAIRS))
        seeds = 1 if options.quick else options.seeds
        run(workspace, seeds=seeds, only=only, out=options.out, is_json=options.json)


def run(workspace: Path, *, seeds: int, only: Collection[str], out: Path | None, is_json: bool) -> None:
    began = time.perf_counter()
    data = make_data(workspace, only)
    for name, each in data.items():
        print(f"{name}: " + ", ".join(f"{split} {each.size(split)}" for split in Split))
    print(f"built in {time.perf_counter() - began:.0f} s")
    lines: dict[tuple[str, str], Line] = {}
    for line in measure(Bench(data, seeds), only):
        lines[line.data, line.title] = line
        cells = "  ".join(map(shown, line.intervals))
        print(f"{line.data:<26}{line.title:<42}{cells}  {line.seconds:.0f} s", flush=True)
    verdicts = [judged(each, lines) for each in EXPECTED if {each.better, each.worse} <= lines.keys()]
    tables = {**score_tables(list(lines.values())), "expectations": verdict_table(verdicts)}
    print(f"\n{markdown(tables)}\n{time.perf_counter() - began:.0f} s in all")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "learning.md").write_text(markdown(tables), encoding="utf-8")
        (out / "learning.html").write_text(page(tables), encoding="utf-8")
    if is_json:
        print(json.dumps(figures(list(lines.values()), verdicts)))


def figures(lines: Sequence[Line], verdicts: Sequence[Verdict]) -> dict[str, object]:
    scores = {f"{line.data}/{line.title}": round(line.intervals[line.judged].mean, 2) for line in lines}
    return {"scores": scores, "expectations": {verdict.text: verdict.result for verdict in verdicts}}


if __name__ == "__main__":
    main()
