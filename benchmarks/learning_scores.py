"""How the models of `benchmarks/learning.py` are trained and scored, and how their scores are kept.

A run (one model, one seed) is kept in a file named after all that its scores follow from: data set, settings, code,
library. A benchmark that was stopped goes on after its last finished run, and one whose code has changed starts anew.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from benchmarks.learning_data import LakeData, digest_of_code
from benchmarks.learning_models import CLASS_NAMES, DOCUMENT_DATA, POSTS, Model
from benchmarks.learning_pairs import PairsData
from benchmarks.learning_scenes import ComposedScenes
from schemas.configs import Json, resolve
from schemas.documents import Split
from schemas.errors import UsageError
from schemas.versions import fingerprint
from training.config import PACKAGED, TrainConfig
from training.data.documents import DocumentSet
from training.data.ragged import Floats
from training.evaluation.baselines import (
    Baseline,
    class_word_vectors,
    evaluate_baseline,
    evaluate_object_detection,
    joint_embeddings,
    object_detection_scores,
)
from training.evaluation.evaluate import STANDARD_CONFIG, random_similarities
from training.loop.context import Context
from training.loop.trainer import train
from training.loop.validation import own_set_ranks
from training.metrics.bootstrap import Interval, mean_interval
from training.metrics.links import score_documents
from training.model import LinkModel
from training.towers.inputs import image_input, text_input

Data = LakeData | ComposedScenes | PairsData
Scores = np.ndarray  # S seeds x D documents x 3 columns, percent; without S: of one run
LINK_COLUMNS, RETRIEVAL_COLUMNS = ("AUC", "p@1", "p@5"), ("R@1", "R@5", "R@10")
CODE = (
    "schemas/**/*.py",
    "training/**/*.py",
    "pipelines/documents/*.py",
    "pipelines/sources/datasets/mscoco.py",
    *(f"benchmarks/learning_{part}.py" for part in ("data", "scenes", "pairs", "scores")),
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
    def seconds_a_model(self) -> float:
        return self.seconds / len(self.scores)

    @property
    def seeds(self) -> str:
        means = self.scores[:, :, self.judged].mean(axis=1)
        return "" if len(means) == 1 else f"{means.min():.1f} to {means.max():.1f}"

    @property
    def columns(self) -> tuple[str, ...]:
        return LINK_COLUMNS if self.data in DOCUMENT_DATA else RETRIEVAL_COLUMNS

    @property
    def judged(self) -> int:
        """Return the column that expectations are about: AUC, or R@10."""
        return 0 if self.data in DOCUMENT_DATA else 2


@dataclass(frozen=True)
class Kept:
    """Scores of finished runs; `code` stands for everything that is not said of a run itself."""

    folder: Path
    code: str

    @classmethod
    def at(cls, folder: Path) -> Kept:
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, f"{torch.__version__} {digest_of_code(*CODE)}")

    def scores(self, run: Mapping[str, Json], make: Callable[[], Scores]) -> tuple[Scores, float]:
        """Return the scores of a run and the processor time it took, made now unless they are there."""
        path = self.folder / f"{fingerprint({**run, 'code': self.code})[:16]}.npz"
        if not path.exists():
            began = time.process_time()
            scores = make()
            partial = path.with_suffix(".partial.npz")
            np.savez(partial, scores=scores, seconds=time.process_time() - began)
            partial.replace(path)
        with np.load(path) as kept:
            return kept["scores"], float(kept["seconds"])


@dataclass(frozen=True)
class Bench:
    data: Mapping[str, Data]
    seeds: int
    kept: Kept

    def trained(self, model: Model) -> Line:
        """Train a model from every seed."""
        runs = [self._run(model, seed) for seed in range(self.seeds if model.has_seeds else 1)]
        scores = np.stack([scores for scores, _ in runs])
        return Line(model.data, model.title, scores, sum(seconds for _, seconds in runs))

    def random(self, data: str) -> Line:
        documents = self._documents(data).classified(Split.TEST)
        sizes = list(zip(documents.ids, documents.sentences.counts, documents.images.counts, strict=True))
        drawn = [[random_similarities(i, n, m, seed=seed) for i, n, m in sizes] for seed in range(self.seeds)]
        return Line(data, "random", np.stack([link_scores(matrices, documents) for matrices in drawn]))

    def baselines(self, data: str) -> Iterator[Line]:
        """Yield the class names and, where it is known where pictures stand, the nearest sentence."""
        built = self._documents(data)
        documents = built.classified(Split.TEST)
        for title, baseline in ((CLASS_NAMES, Baseline.CLASS_NAMES), ("nearest sentence", Baseline.NEAREST_SENTENCE)):
            with contextlib.suppress(UsageError):
                found = evaluate_baseline(
                    baseline, built.lake, built.reference, Split.TEST, config=STANDARD_CONFIG
                ).evaluation
                yield Line(data, title, link_scores(found.matrices, documents)[None])

    def object_detection(self, data: str) -> Iterator[Line]:
        """Yield the baseline with K chosen on validation, and with the best K on test (an upper bound)."""
        built = self._documents(data)
        test, validation = built.classified(Split.TEST), built.classified(Split.VAL)
        vectors = class_word_vectors(PACKAGED, test, validation, dimensions=50)
        found = evaluate_object_detection(test, validation, vectors, where=data)
        if found.values["k"] is not None:
            title = f"object detection, K = {found.values['k']} by validation"
            yield Line(data, title, link_scores(found.evaluation.matrices, test)[None])
        best = int(found.values["best_k"] or 0)
        matrices = object_detection_scores(test, vectors, k=best)
        yield Line(data, f"object detection, best K on test = {best}", link_scores(matrices, test)[None])

    def joint_embeddings(self, model: Model) -> Line:
        """Score a model's frozen joint vectors on `posts`, whose test pictures no model of `scenes` has seen."""
        config, posts = model.config(0), self._documents(POSTS)
        run: dict[str, Json] = {"of": self.data[model.data].key, "on": posts.key, "config": resolve(config)}

        def make() -> Scores:
            trained = fit(config, self.data[model.data])
            documents = posts.documents(trained, Split.TEST)
            joint = replace(
                documents,
                sentence_vectors=trained.encode_sentences(text_input(documents)),
                image_bank=trained.encode_images(image_input(documents)),
            )
            return link_scores([each.similarities() for each in joint_embeddings(joint)], joint)

        scores, seconds = self.kept.scores(run, make)
        return Line(POSTS, f"frozen joint embeddings ({model.title} of {model.data})", scores[None], seconds)

    def _run(self, model: Model, seed: int) -> tuple[Scores, float]:
        data, config = self.data[model.data], model.config(seed)

        def make() -> Scores:
            trained = fit(config, data)
            judge = retrieval_scores if isinstance(data, PairsData) else model_link_scores
            return judge(trained, data.documents(trained, Split.TEST))

        return self.kept.scores({"of": data.key, "config": resolve(config)}, make)

    def _documents(self, data: str) -> LakeData:
        found = self.data[data]
        assert isinstance(found, LakeData)
        return found


def fit(config: TrainConfig, data: Data) -> LinkModel:
    """Return a model trained in this process."""
    with tempfile.TemporaryDirectory(prefix="learning-") as folder:
        result = train(config, data.training(config), Context(), run_directory=Path(folder))
        return LinkModel.load(result.model)


def model_link_scores(model: LinkModel, documents: DocumentSet) -> Scores:
    return link_scores(model.similarities(documents), documents)


def link_scores(matrices: Sequence[Floats], documents: DocumentSet) -> Scores:
    """Return a row (AUC, p@1, p@5) for each document that can be scored."""
    return score_documents(matrices, documents.links or ()).table


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
