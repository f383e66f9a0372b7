"""What a model links in documents whose links need not be known."""

from dataclasses import dataclass

from schemas.console import Say
from schemas.documents import Split
from schemas.lake import Lake
from training.evaluation.evaluate import STANDARD_CONFIG
from training.evaluation.models import read_sampled
from training.loop.validation import split_loss
from training.mlflow.loading import open_model
from training.report.example_documents import SpreadDocument, most_spread
from training.report.pages import examples_page


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplesSummary:
    """Documents whose images and sentences differ most, with the links that a model predicts.

    Attributes:
        model: its address.
        dataset: NAME@VERSION.
        split: of it.
        loss: of the model's objective on the split's documents; None where the objective reads links.
        documents: the most different first.
    """

    model: str
    dataset: str
    split: str
    loss: float | None
    documents: tuple[SpreadDocument, ...]

    def lines(self) -> list[str]:
        loss = "" if self.loss is None else f": loss {self.loss:.4f}"
        spreads = (f"{each.example.id}  {each.image_spread:.3f}  {each.text_spread:.3f}" for each in self.documents)
        return [f"{self.model} on {self.dataset}, {self.split}{loss}", "document, spread of images, of texts", *spreads]

    def page(self) -> str:
        """Return the documents as an HTML page."""
        about = {"model": self.model, "dataset": self.dataset, "split": self.split}
        return examples_page([each.example for each in self.documents], loss=self.loss, **about)


def run_examples(
    *,
    model: str,
    dataset: str,
    lake: str,
    split: str = Split.TEST,
    count: int = 6,
    tracking: str | None = None,
    say: Say,
) -> ExamplesSummary:
    """Show what a model links in a split whose links need not be known, such as WIKI's (Hessel 2019, figure 5).

    A split of more documents than are evaluated is sampled, as in `run_evaluate`.

    Args:
        model: its address.
        dataset: NAME or NAME@VERSION.
        lake: path or URI of the lake.
        split: train, val or test.
        count: documents that are shown.
        tracking: MLflow's address.
        say: takes a line of progress.

    Raises:
        UsageError: the model, data set or split is not there, or they do not fit together.
    """
    home = Lake.at(lake)
    reference, loaded = "@".join(home.find(dataset)), open_model(model, tracking)
    say(f"linking {reference}, split {split}, with {loaded.uri}")
    manifest, folder = read_sampled(home, reference, STANDARD_CONFIG)
    return ExamplesSummary(
        model=loaded.uri,
        dataset=reference,
        split=str(split),
        loss=split_loss(loaded.model, manifest, folder, Split(split)),
        documents=tuple(most_spread(loaded.model, manifest, folder, split, count=count)),
    )
