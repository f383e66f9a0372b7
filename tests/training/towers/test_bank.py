import numpy as np
import torch

from training.towers.inputs import BankRows, VectorRows, on_device
from training.towers.vectors import VectorTower

CPU = torch.device("cpu")


def test_a_bank_gives_what_the_host_gives() -> None:
    torch.manual_seed(0)
    rows = VectorRows(np.random.default_rng(0).normal(size=(9, 5)).astype(np.float16))
    tower = VectorTower(5, 4, dropout=0.0)
    chosen = np.array([3, 3, 0, 8])
    bank = BankRows(torch.from_numpy(rows.vectors))
    assert len(bank) == 9
    assert len(bank.take(chosen)) == 4
    assert torch.equal(tower(bank.take(chosen)), tower(rows.take(chosen)))


def test_rows_stay_on_the_host_without_a_gpu() -> None:
    rows = VectorRows(np.zeros((2, 3), np.float16))
    assert on_device(rows, CPU) is rows
