import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import combinations, islice, permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from schemas.errors import ConfigError
from training.config import Solver
from training.data.ragged import Ragged
from training.similarity.assignment import Problems, assign, match_batch

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)
INTERPRETED = Path(__file__).with_name("interpreted_solver.py")


def problems_of(sentences: list[int], images: list[int], k: str = "min") -> Problems:
    """Return every pair's problem."""
    sets, others = (numbers.ravel() for numbers in np.indices((len(sentences), len(images))))
    return Problems.of(Ragged.of(sentences), Ragged.of(images), sets, others, k)


def blocks_of(gains: np.ndarray, sentences: list[int], images: list[int]) -> list[np.ndarray]:
    """Return every pair's block of a matrix."""
    rows = np.split(gains, np.cumsum(sentences)[:-1])
    return [block for part in rows for block in np.split(part, np.cumsum(images)[:-1], axis=1)]


def matrices(sentences: list[int], images: list[int], seed: int) -> Iterator[np.ndarray]:
    """Yield matrices without ties, with many, without a positive entry, and of one value."""
    shape, rng = (sum(sentences), sum(images)), np.random.default_rng(seed)
    yield rng.uniform(-1, 1, shape)
    yield rng.integers(-2, 3, shape) / 4
    yield -rng.integers(0, 2, shape).astype(float)
    yield np.full(shape, -0.5)


def sums_of(gains: np.ndarray, problems: Problems, taken: np.ndarray) -> list[float]:
    """Return each problem's sum, having checked that its entries are in its block, in different rows and columns."""
    sums = []
    for problem, entries in enumerate(np.split(taken, np.cumsum(problems.heights)[:-1])):
        top, left = problems.tops[problem], problems.lefts[problem]
        assert (entries[entries < 0] == ~(top * gains.shape[1] + left)).all()
        rows, columns = np.divmod(entries[entries >= 0], gains.shape[1])
        assert len(rows) == len(set(rows.tolist())) == len(set(columns.tolist())) == problems.edges[problem]
        size = int(problems.heights[problem]), int(problems.widths[problem])
        n, m = size[::-1] if problems.is_turned[problem] else size
        assert ((rows >= top) & (rows < top + n) & (columns >= left) & (columns < left + m)).all()
        sums.append(float(gains[rows, columns].sum()))
    return sums


def best_sum(block: np.ndarray, edges: int) -> float:
    """Return the largest sum of exactly `edges` entries, no two in a row or column, by trying them all."""
    n, m = block.shape
    return max(
        float(sum(block[row, column] for row, column in zip(rows, columns, strict=True)))
        for rows in combinations(range(n), edges)
        for columns in permutations(range(m), edges)
    )


@settings(max_examples=25)
@given(
    sentences=SIZES,
    images=SIZES,
    k=st.sampled_from(["min", "half", "0.01"]),
    seed=st.integers(0, 1000),
)
def test_every_block_has_the_largest_sum(*, sentences: list[int], images: list[int], k: str, seed: int) -> None:
    problems = problems_of(sentences, images, k)
    for gains in matrices(sentences, images, seed):
        blocks = blocks_of(gains, sentences, images)
        expected = [best_sum(block, edges) for block, edges in zip(blocks, problems.edges.tolist(), strict=True)]
        assert sums_of(gains, problems, assign(gains, problems)) == pytest.approx(expected)


def test_sizes_at_which_either_solver_is_used() -> None:
    sentences, images = [12, 15, 40, 3], [12, 16, 36, 90]
    problems = problems_of(sentences, images)
    for gains in matrices(sentences, images, seed=0):
        blocks = blocks_of(gains, sentences, images)
        expected = [block[linear_sum_assignment(block, maximize=True)].sum() for block in blocks]
        assert sums_of(gains, problems, assign(gains, problems)) == pytest.approx(expected)


def test_no_problem_has_no_answer() -> None:
    assert assign(np.zeros((0, 3)), problems_of([], [3])).tolist() == []


NEEDS_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="PyTorch for CPUs alone comes without Triton")


@NEEDS_TRITON
def test_the_solver_for_gpus_compiles_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the interpreter lets pass, such as a variable whose type changes in a loop, the compiler does not."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from training.similarity.assignment_gpu import _solve

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    signature = {"gains": "*fp32", "table": "*i64", "bonus": "*fp64", "taken": "*i64", "count": "i32"}
    source = ASTSource(fn=_solve, signature=signature | {"LANES": "constexpr"}, constexprs={"LANES": 32})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    assert ".entry _solve" in compiled.asm["ptx"]


@NEEDS_TRITON
def test_the_solver_for_gpus_finds_the_same_sums_when_interpreted(tmp_path: Path) -> None:
    cases = [([3, 5, 1], [4, 2], "min", 4), ([6], [7, 12], "0.3", 2), ([2], [40], "min", 1)]
    asked = [
        (gains, problems_of(sentences, images, k))
        for seed, (sentences, images, k, kinds) in enumerate(cases)
        for gains in islice(matrices(sentences, images, seed), kinds)
    ]
    (tmp_path / "asked").write_bytes(pickle.dumps(asked))
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(INTERPRETED.parents[3])}
    command = [sys.executable, str(INTERPRETED), str(tmp_path / "asked"), str(tmp_path / "solved")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    for (gains, problems), taken in zip(asked, pickle.loads((tmp_path / "solved").read_bytes()), strict=True):
        expected = sums_of(gains, problems, assign(gains, problems))
        assert sums_of(gains, problems, taken) == pytest.approx(expected, abs=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("k", ["min", "half"])
def test_the_solver_for_gpus_finds_the_same_sums_on_one(k: str) -> None:
    from training.similarity.assignment_gpu import assign_on_gpu

    rng = np.random.default_rng(0)
    sentences, images = rng.integers(1, 40, 30).tolist(), rng.integers(1, 150, 30).tolist()
    problems = problems_of(sentences, images, k)
    gains = rng.uniform(-1, 1, (sum(sentences), sum(images))).astype(np.float32)
    taken = assign_on_gpu(torch.from_numpy(gains).cuda(), problems).cpu().numpy()
    expected = sums_of(gains, problems, assign(gains, problems))
    assert sums_of(gains, problems, taken) == pytest.approx(expected, abs=1e-5)


def test_the_solver_of_gpus_is_asked_for_and_needs_one() -> None:
    matrix, own = torch.rand(3, 4), [Ragged.of([3]), Ragged.of([4])]
    with pytest.raises(ConfigError, match=r"objective\.solver = 'gpu': expected training on a GPU"):
        match_batch(matrix, *own, k="min", matching="exact", solver=Solver.GPU)
