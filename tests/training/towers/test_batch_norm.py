"""Batch norm over several workers, played by threads that meet at each gather, against torch's over the whole batch."""

import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn

from training.towers.batch_norm import BatchNorm, remember_moments
from training.towers.inputs import TrainingPass


class Meeting:
    """Workers that hand each other their rows in rank order."""

    def __init__(self, workers: int) -> None:
        self.barrier = threading.Barrier(workers, timeout=30)
        self.rows: list[Tensor] = [torch.zeros(0)] * workers

    def gather_of(self, rank: int) -> Callable[[Tensor], list[Tensor]]:
        def gather(own: Tensor) -> list[Tensor]:
            self.rows[rank] = own.detach()
            self.barrier.wait()
            found = list(self.rows)
            self.barrier.wait()
            return found

        return gather


def together(parts: list[Tensor], weights: Tensor) -> list[tuple[Tensor, Tensor, BatchNorm]]:
    """Return each worker's (gradient of its input, output, layer); the loss is the weighted sum of all outputs."""
    meeting = Meeting(len(parts))
    found: list[tuple[Tensor, Tensor, BatchNorm] | None] = [None] * len(parts)
    starts = [sum(len(part) for part in parts[:rank]) for rank in range(len(parts))]

    def work(rank: int) -> None:
        layer = BatchNorm(weights.shape[1])
        own = parts[rank].clone().requires_grad_()
        moment = TrainingPass(seed=0, epoch=1, step=0, gather=meeting.gather_of(rank))
        out = layer(own, moment)
        remember_moments(layer, is_counted=True, total=lambda moments: moments)
        (out * weights[starts[rank] : starts[rank] + len(own)]).sum().backward()
        grad = own.grad if own.grad is not None else torch.zeros_like(own)
        found[rank] = (grad, out.detach(), layer)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(part is not None for part in found)
    return [part for part in found if part is not None]


def test_workers_normalise_and_differentiate_as_one_does() -> None:
    torch.manual_seed(0)
    rows, weights = torch.randn(7, 3) * 2 + 1, torch.randn(7, 3)
    reference = nn.BatchNorm1d(3)
    whole = rows.clone().requires_grad_()
    out = reference(whole)
    (out * weights).sum().backward()
    assert whole.grad is not None and reference.weight.grad is not None and reference.bias.grad is not None
    for sizes in ([7], [4, 3], [5, 0, 2]):
        found = together(list(rows.split(sizes)), weights)
        assert torch.allclose(torch.cat([part[1] for part in found]), out, atol=1e-5)
        assert torch.allclose(torch.cat([part[0] for part in found]), whole.grad, atol=1e-5)
        scale = torch.stack([part[2].scale.grad for part in found if part[2].scale.grad is not None]).sum(dim=0)
        shift = torch.stack([part[2].shift.grad for part in found if part[2].shift.grad is not None]).sum(dim=0)
        assert torch.allclose(scale, reference.weight.grad, atol=1e-5)
        assert torch.allclose(shift, reference.bias.grad, atol=1e-5)
        for _, _, layer in found:
            assert torch.allclose(layer.running_mean, reference.running_mean, atol=1e-6)  # type: ignore[arg-type]
            assert torch.allclose(layer.running_variance, reference.running_var, atol=1e-5)  # type: ignore[arg-type]


def test_evaluation_uses_the_running_moments() -> None:
    layer, reference = BatchNorm(3), nn.BatchNorm1d(3)
    rows = torch.randn(9, 3)
    for _ in range(3):
        layer(rows), reference(rows)
        remember_moments(layer, is_counted=True, total=lambda moments: moments)
    assert torch.allclose(layer.eval()(rows), reference.eval()(rows), atol=1e-5)


def test_moments_of_a_step_are_the_means_over_its_batches_counted_once() -> None:
    """Two workers: one normalised two batches, the other one that a third worker counts."""
    first, second, rows = BatchNorm(3), BatchNorm(3), torch.randn(3, 9, 3)
    for layer, batches in ((first, rows[:2]), (second, rows[2:])):
        for batch in batches:
            layer(batch)
    given: list[Tensor] = []
    remember_moments(second, is_counted=False, total=lambda moments: given.append(moments) or moments)
    remember_moments(first, is_counted=True, total=lambda moments: moments + given[0])
    assert torch.allclose(first.running_mean, 0.1 * rows[:2].mean(dim=1).mean(dim=0), atol=1e-6)
    assert torch.allclose(first.running_variance, 0.9 + 0.1 * rows[:2].var(dim=1).mean(dim=0), atol=1e-6)
    assert not given[0].any() and not first.fresh and not second.fresh
