"""How links are chosen and what they carry: the same options from the command line to the linker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from schemas.configs import resolve
from schemas.errors import UsageError
from training.metrics.calibration import Calibration
from training.metrics.relations import RefineConfig, RelationPredictor
from training.model import LinkModel


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """Options of links, with the values that links have without any.

    A new option is a field here, a parameter of `link_options` (`orchestration/commands/options.py`), and an entry of
    `decisive` where it changes which links there are.

    Attributes:
        precision: share of links, 0 to 1, that is to be true: links below the calibration's threshold are left out.
        refine: links are chosen by similarities that predicted relations refine (Alikhani 2022, eq. 4-6), and keep
            their cosines; None: by the cosines.
        calibration: gives links their probability; None: the model's own, where it has one.
        fit: whether a user's documents, where they are many enough, choose the weights of the model's steps.
        is_of_model: whether the calibration is the model's own, which holds for the data set it was fitted on. Who
            names another one answers for it.
    """

    precision: float | None = None
    refine: RefineConfig | None = None
    fit: bool = True
    calibration: Calibration | None = None
    is_of_model: bool = False

    def calibrated(self, own: Calibration | None) -> LinkOptions:
        """Return the options with a model's own calibration, where they have none."""
        return self if self.calibration else replace(self, calibration=own, is_of_model=True)

    def outside(self, dataset: str, shape: tuple[int, int] | None = None) -> str:
        """Return why links have a word and no probability (`Calibration.outside`); empty: they have one, or neither."""
        calibration = self.calibration
        return (
            ""
            if calibration is None
            else calibration.outside(dataset if self.is_of_model else calibration.dataset, shape)
        )

    @property
    def can_fit(self) -> bool:
        """Return whether steps may be chosen on the documents that are linked: nothing given is of the model's own."""
        return self.fit and self.precision is None and self.calibration is None and self.refine is None

    def threshold(self, uri: str) -> float:
        """Return the similarity below which links of the model at an address are left out.

        Raises:
            UsageError: there is a precision, and no calibration, or none of its thresholds reaches it.
        """
        if self.precision is None:
            return -np.inf
        if self.calibration is None:
            raise UsageError(
                f"--precision {self.precision:g}: {uri} has no calibration; `multilink evaluate` makes one where the "
                "data set it was trained on has validation links, or give one with --calibration"
            )
        return self.calibration.threshold(self.precision)

    def check(self, model: LinkModel, uri: str) -> None:
        """Raise a `UsageError` where a model cannot link with these options."""
        self.threshold(uri)
        if self.precision is not None and self.refine is not None:
            raise UsageError(
                f"--precision {self.precision:g}: expected no --refine-below; the thresholds do not hold "
                "for links that relations chose"
            )
        if self.refine is not None:
            RelationPredictor.of(model)

    def decisive(self) -> dict[str, Any]:
        """Return what decides which links there are, JSON-ready, for fingerprints.

        An option that came later is named only where it has another value than links had before.
        """
        return {
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "precision": self.precision,
            "is_of_model": self.is_of_model,
            **({} if self.refine is None else {"refine": resolve(self.refine)}),
        }


DEFAULT_OPTIONS = LinkOptions()
