"""The speed of an extractor: what is run, how often, and what the figures mean."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from pipelines.features.bench import Clock, best_seconds, image_speed, sentence_speed
from pipelines.features.cnn import CnnVectors
from pipelines.features.values import Compute, Device


def test_the_least_time_counts_and_runs_take_turns() -> None:
    order: list[str] = []
    pauses = iter([0.0, 0.4, 0.02, 0.4])

    def first() -> None:
        order.append("first")
        time.sleep(next(pauses))

    found = best_seconds([first, partial(order.append, "second")], rounds=3, clock=Clock.WALL)
    assert order == ["first", "second"] * 4
    assert 0.02 <= found[0] < 0.4
    pauses = iter([0.2, 0.2])
    assert best_seconds([first], rounds=1, clock=Clock.CPU)[0] < 0.1  # waiting is no work


def test_an_extractor_is_measured_beside_its_bare_model(photographs: dict[str, bytes]) -> None:
    extractor = CnnVectors("efficientnet-lite0", compute=Compute(device=Device.CPU), weights={})
    found = image_speed(extractor, list(photographs.values()), rounds=2, clock=Clock.CPU)
    assert found.name == "efficientnet-lite0"
    assert found.bound is not None and found.bound > 1
    assert found.share == pytest.approx(found.rate / found.bound)
    assert 0.2 < found.share < 2  # decoding is a few per cent; the rest is what else the machine does


def test_an_extractor_without_a_bare_model_has_no_bound() -> None:
    class Lengths:
        name, dimensions = "lengths", 1

        def fingerprint(self) -> str:
            return ""

        def extract(self, texts: Sequence[str]) -> np.ndarray:
            time.sleep(0.01)
            return np.array([[len(text)] for text in texts], np.float32)

    found = sentence_speed(Lengths(), ["a", "bc"], rounds=1)
    assert (found.bound, found.share) == (None, None)
    assert 0 < found.rate < 200
