"""Solves problems as on a GPU, in Triton's interpreter: `TRITON_INTERPRET=1 interpreted_solver.py PROBLEMS SOLVED`.

In a process of its own, since Triton decides at its import whether it interprets. PROBLEMS is a pickled list of
(matrix, problems), SOLVED takes the list of what each gives.
"""

import pickle
import sys
from pathlib import Path

import torch

from training.similarity.assignment_gpu import assign_on_gpu


def main(problems: str, solved: str) -> None:
    asked = pickle.loads(Path(problems).read_bytes())
    found = [assign_on_gpu(torch.from_numpy(gains), problems).numpy() for gains, problems in asked]
    Path(solved).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
