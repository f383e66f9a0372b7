"""A page of linked documents: predictions where nobody knows the true links, drawn as the report draws them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from training.evaluation.example_graph import draw_example
from training.evaluation.examples import ExampleDocument
from training.evaluation.report import edge_legend, environment, write_page


def write_linked_page(documents: Sequence[ExampleDocument], directory: Path, *, model: str) -> Path:
    """Write `index.html` of linked documents to a directory, made if missing, and return its path.

    Args:
        model: address of the model that predicted the links.
    """
    graphs = [draw_example(document) for document in documents]
    page = environment().get_template("linked.html.j2").render(model=model, graphs=graphs, legend=edge_legend(graphs))
    return write_page(directory, page)
