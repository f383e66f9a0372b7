"""A model that was read, and where it is from. Its files are read by `training.mlflow.loading`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from training.evaluation.models import CLASS_NAMES, class_names_model
from training.linking.links import DEFAULT_OPTIONS, Linker, LinkOptions
from training.metrics.calibration import Calibration
from training.model import LinkModel

if TYPE_CHECKING:  # what signs statements takes a tenth of a second to import
    from training.promotions.record import ModelVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model and where it is from.

    Attributes:
        model: both towers.
        uri: its address, an alias resolved to the version it stood for.
        version: of the registry; None for a folder.
        calibration: of its evaluation on the data it was trained on; None before that.
        files: of a version: path -> SHA-256, but for those that change later (`training.promotions.proof`).
    """

    model: LinkModel
    uri: str
    version: "ModelVersion | None" = None
    calibration: Calibration | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Return what is the same of two models with the same files; of one that is not registered its address."""
        return (self.version and self.version.digest) or self.uri

    @property
    def calibration_digest(self) -> str:
        """Return the digest of its calibration; empty: it has none."""
        return "" if self.calibration is None else self.calibration.digest

    @property
    def index_name(self) -> str:
        """Return the name under which the model's indexes lie: of the registry, else of its weights."""
        if self.version is not None:
            return f"{self.version.name}-{self.version.version}"
        return f"model-{self.model.digest()[:12]}"

    def linker(self, options: LinkOptions = DEFAULT_OPTIONS) -> Linker:
        """Return what links with the model: by its own calibration, where the options have none; raises as `Linker`."""
        return Linker(model=self.model, uri=self.uri, options=options.calibrated(self.calibration))


def class_names() -> LoadedModel:
    """Return the model that needs no training, and no registry."""
    return LoadedModel(model=class_names_model(), uri=CLASS_NAMES)
