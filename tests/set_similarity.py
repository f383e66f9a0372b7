"""The similarities of a sentence set and an image set, each by its definition, for one matrix (SPEC 4)."""

from torch import Tensor

from training.similarity.similarity import edge_counts, match

KINDS = ("dc", "tk", "ap")


def set_similarity(
    matrix_nm: Tensor, kind: str, k: str = "min", combine: str = "sum", matching: str = "exact"
) -> Tensor:
    """Return the similarity of one sentence set and one image set, a scalar; differentiable."""
    n, m = matrix_nm.shape
    count = int(edge_counts(n, m, k))
    if kind == "ap":
        rows, columns = match(matrix_nm.detach().double().cpu().numpy(), count, matching)
        return matrix_nm[rows, columns].sum() / max(len(rows), 1)
    by_row, by_column = matrix_nm.amax(dim=1), matrix_nm.amax(dim=0)
    if kind == "tk":
        by_row, by_column = by_row.topk(count).values, by_column.topk(count).values
    return (by_row.mean() + by_column.mean()) * (1.0 if combine == "sum" else 0.5)
