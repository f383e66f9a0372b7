"""How the models of `benchmarks/learning.py` are trained and scored, and how their scores are kept.

A run (one model on one split) is kept in a file named after all that its scores follow from: data set, settings, code,
library. A benchmark that was stopped goes on after its last finished run, and one whose code has changed starts anew.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.learning_data import LakeData, digest_of_code
from benchmarks.learning_models import CLOSED_FORM, DOCUMENT_DATA, ORDERS, Model
from benchmarks.learning_pairs import PairsData
from benchmarks.learning_scenes import ComposedScenes, OrderedScenes
from schemas.configs import resolve
from schemas.documents import Split
from schemas.messages import UsageError
from schemas.versions import fingerprint
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.ragged import Floats
from training.evaluation.baselines import (
    Baseline,
    class_word_vectors,
    evaluate_baseline,
    evaluate_object_detection,
)
from training.evaluation.evaluate import STANDARD_CONFIG, random_similarities
from training.loop.context import Context
from training.loop.epoch import own_set_ranks
from training.loop.trainer import train
from training.metrics.calibration import Calibration, Observations, calibration_scores, fit_calibration, observe
from training.metrics.curves import fit_sigmoid
from training.metrics.intervals import Interval, difference_interval, mean_interval
from training.metrics.links import roc_auc, score_documents
from training.model import LinkModel
from training.parts import PACKAGED
from training.towers.inputs import image_input, text_input

Data = LakeData | ComposedScenes | OrderedScenes | PairsData
Row = tuple[float, float, float]
LINK_COLUMNS, RETRIEVAL_COLUMNS = ("AUC", "p@1", "p@5"), ("R@1", "R@5", "R@10")
CODE = (
    "schemas/**/*.py",
    "training/**/*.py",
    "pipelines/documents/*.py",
    "pipelines/sources/datasets/mscoco.py",
    *(f"benchmarks/learning_{part}.py" for part in ("data", "scenes", "pairs", "scores")),
)


@dataclass(frozen=True)
class Run:
    """What one model scores on the test documents of one split.

    Attributes:
        scores: document -> three columns, percent.
        seconds: of a processor, for training and scoring.
        calibration: how well its links are told right from wrong, by name; empty unless it is measured.
    """

    scores: Mapping[str, Row]
    seconds: float = 0.0
    calibration: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Line:
    """Scores of one model on all splits."""

    data: str
    title: str
    runs: Sequence[Run]
    model: Model | None = None

    @cached_property
    def by_document(self) -> Mapping[str, np.ndarray]:
        """Return document -> three columns: the mean over the splits in which it is tested."""
        found: dict[str, list[Row]] = defaultdict(list)
        for run in self.runs:
            for name, row in run.scores.items():
                found[name].append(row)
        return {name: np.mean(rows, axis=0) for name, rows in found.items()}

    @cached_property
    def intervals(self) -> list[Interval]:
        return [mean_interval(column) for column in np.array([*self.by_document.values()]).T]

    def differences(self, other: Line, column: int) -> Interval:
        """Return this line less another of the same documents (document by document)."""
        theirs = other.by_document
        pairs = np.array([(row[column], theirs[name][column]) for name, row in self.by_document.items()])
        return difference_interval(pairs[:, 0] - pairs[:, 1])

    def splits(self, column: int = 0) -> list[float]:
        return [float(np.mean([row[column] for row in run.scores.values()])) for run in self.runs]

    @property
    def seconds(self) -> float:
        return float(np.mean([run.seconds for run in self.runs]))

    @property
    def columns(self) -> tuple[str, ...]:
        return LINK_COLUMNS if self.data in (*DOCUMENT_DATA, *ORDERS) else RETRIEVAL_COLUMNS


@dataclass(frozen=True)
class Kept:
    """Finished runs; `code` stands for everything that is not said of a run itself."""

    folder: Path
    code: str

    @classmethod
    def at(cls, folder: Path) -> Kept:
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, f"{digest_of_code(*CODE)} {torch.__version__}")

    def run(self, of: dict[str, Any], make: Callable[[], Run]) -> Run:
        """Return a run, made unless it is kept."""
        path = self.folder / f"{fingerprint(of | {'code': self.code})}.json"
        if not path.exists():
            began = time.process_time()
            found = replace(make(), seconds=time.process_time() - began)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps([found.scores, found.seconds, found.calibration]), encoding="utf-8")
            partial.replace(path)
        return Run(*json.loads(path.read_text(encoding="utf-8")))


def trained(model: Model, data: Data, kept: Kept) -> Run:
    """Return what a model scores on a split."""
    config = model.config(data.split)

    def make() -> Run:
        fitted = fit(config, data)
        documents = data.documents(fitted, Split.TEST)
        if isinstance(data, PairsData):
            return Run(retrieval_scores(fitted, documents))
        own = model.title == CLOSED_FORM
        calibration = calibrated(fitted, documents, data.documents(fitted, Split.VAL)) if own else None
        return Run(link_scores(fitted.similarities(documents), documents, data), calibration=calibration)

    return kept.run({"of": data.key, "split": data.split, "config": resolve(config)}, make)


def baselines(data: LakeData | ComposedScenes) -> Iterator[tuple[str, Run]]:
    """Yield what needs no training; a baseline that the data set cannot have is left out."""
    built = data.scenes if isinstance(data, ComposedScenes) else data
    documents, validation = data.classified(Split.TEST), data.classified(Split.VAL)
    sizes = zip(documents.ids, documents.sentences.counts, documents.images.counts, strict=True)
    drawn = [random_similarities(name, n, m, seed=data.split) for name, n, m in sizes]
    yield "random", Run(link_scores(drawn, documents, data))
    for title, baseline in (("nearest sentence", Baseline.NEAREST_SENTENCE), ("class names", Baseline.CLASS_NAMES)):
        with contextlib.suppress(UsageError):
            found = evaluate_baseline(baseline, built.lake, built.reference, Split.TEST, config=STANDARD_CONFIG)
            yield title, Run(link_scores(found.evaluation.matrices, documents, data))
    vectors = class_word_vectors(PACKAGED, documents, validation, dimensions=50)
    detected = evaluate_object_detection(documents, validation, vectors, where=data.key).evaluation
    yield "object detection", Run(link_scores(detected.matrices, documents, data))


def fit(config: TrainConfig, data: Data) -> LinkModel:
    """Return a model trained in this process."""
    with tempfile.TemporaryDirectory(prefix="learning-") as folder:
        result = train(config, data.training(config), Context(), run_directory=Path(folder))
        return LinkModel.load(result.model)


def link_scores(matrices: Sequence[Floats], documents: DocumentSet, data: Data) -> dict[str, Row]:
    """Return AUC, p@1 and p@5 of each document that can be scored.

    A post is one document in whatever split; scenes of another split are other documents.
    """
    found = score_documents(matrices, documents.links or ())
    prefix = "" if documents.ids[0].startswith("t3") else f"{data.split}/"
    names = (f"{prefix}{documents.ids[place]}" for place in found.documents)
    return dict(zip(names, map(tuple, found.table.tolist()), strict=True))


def calibrated(model: LinkModel, test: DocumentSet, validation: DocumentSet) -> dict[str, float]:
    """Return how well drawn links are told right from wrong by a calibration on validation documents.

    Of all that is seen of a link, and of its similarity alone: AUC of "this link is right", and calibration error.
    """
    judged, known = (observe(model.similarities(each), each.links or ()) for each in (test, validation))
    full = fit_calibration(known, dataset="", split="val")
    slope, intercept = fit_sigmoid(known.features[:, :1], known.are_true)
    alone = replace(full, slopes=(slope, 0.0, 0.0), intercept=intercept)
    ways = {"similarity": alone, "similarity, plan and margin": full}
    return {f"{name}: {what}": value for name, way in ways.items() for what, value in _told(way, judged).items()}


def _told(way: Calibration, judged: Observations) -> dict[str, float]:
    error = next(x.value for x in calibration_scores(way, judged) if x.metric == "expected_calibration_error")
    right = judged.are_true
    auc = 100 * roc_auc(way.of_features(judged.features), right) if 0 < right.sum() < len(right) else 50.0
    return {"AUC": auc, "error": error or 0.0}


def retrieval_scores(model: LinkModel, pairs: DocumentSet) -> dict[str, Row]:
    """Return R@1, R@5 and R@10 of each pair: its rank among all pairs, the mean of both directions.

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
    return dict(zip(pairs.ids, map(tuple, torch.stack(columns, dim=1).tolist()), strict=True))
