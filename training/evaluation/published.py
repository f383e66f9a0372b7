"""Published link-prediction results, for reports to print beside ours; tests and training never read them.

They were measured on the papers' own builds of the data sets, with the papers' features, so they are context and no
target. Sources: H is Hessel, Lee and Mimno 2019 (tables 2 and 3; DC, TK and AP with b = 10 and k = min(n, m));
L is Li, Wei, Fan, Shan and Huang 2022 (tables 2 and 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HESSEL_CROWD = "Hessel et al. 2019, table 2"
HESSEL_ORGANIC = "Hessel et al. 2019, table 3"
LI = "Li et al. 2022, table 2"
LI_TRANSFER = "Li et al. 2022, table 4"


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """One row of a paper's results table, in percent."""

    model: str
    source: str
    auc: float
    precision_at_1: float
    precision_at_5: float


def published_results(dataset: str) -> tuple[PublishedResult, ...]:
    """Return the published rows for a data set's test split, weakest baseline first; none for other data."""
    return PUBLISHED.get(dataset, ())


def published_transfer(dataset: str) -> tuple[PublishedResult, ...]:
    """Return the published rows of models that were trained on another data set; none for other data."""
    return PUBLISHED_TRANSFER.get(dataset, ())


PUBLISHED_TRANSFER: Mapping[str, tuple[PublishedResult, ...]] = {
    "story-dii": (PublishedResult("Transfer from MSCOCO, supervised there", LI_TRANSFER, 78.6, 66.5, 49.5),),
}
PUBLISHED: Mapping[str, tuple[PublishedResult, ...]] = {
    "mscoco": (
        PublishedResult("Random", HESSEL_CROWD, 49.7, 5.0, 4.6),
        PublishedResult("Object detection", HESSEL_CROWD, 89.5, 67.7, 45.9),
        PublishedResult("NoStruct", HESSEL_CROWD, 87.5, 50.6, 34.6),
        PublishedResult("DC", HESSEL_CROWD, 98.9, 93.6, 80.1),
        PublishedResult("TK", HESSEL_CROWD, 98.9, 93.9, 80.1),
        PublishedResult("AP", HESSEL_CROWD, 98.7, 91.0, 78.0),
        PublishedResult("C+I+D", LI, 99.3, 97.6, 86.0),
    ),
    "story-dii": (
        PublishedResult("Random", HESSEL_CROWD, 49.4, 19.5, 19.2),
        PublishedResult("Object detection", HESSEL_CROWD, 65.3, 50.2, 35.2),
        PublishedResult("NoStruct", HESSEL_CROWD, 76.6, 60.1, 46.2),
        PublishedResult("DC", HESSEL_CROWD, 82.8, 71.5, 55.5),
        PublishedResult("TK", HESSEL_CROWD, 82.9, 71.4, 55.5),
        PublishedResult("AP", HESSEL_CROWD, 82.6, 70.5, 55.0),
        PublishedResult("C+I+D", LI, 85.5, 77.2, 60.1),
    ),
    "story-sis": (
        PublishedResult("Random", HESSEL_CROWD, 50.0, 19.4, 19.7),
        PublishedResult("Object detection", HESSEL_CROWD, 58.4, 40.8, 28.6),
        PublishedResult("NoStruct", HESSEL_CROWD, 64.9, 43.2, 33.7),
        PublishedResult("DC", HESSEL_CROWD, 68.8, 51.8, 38.6),
        PublishedResult("TK", HESSEL_CROWD, 68.8, 50.9, 38.7),
        PublishedResult("AP", HESSEL_CROWD, 68.5, 50.5, 38.3),
        PublishedResult("C+I+D", LI, 70.2, 53.1, 39.8),
    ),
    "dii-stress": (
        PublishedResult("Random", HESSEL_CROWD, 50.0, 2.0, 2.0),
        PublishedResult("Object detection", HESSEL_CROWD, 76.9, 25.7, 17.5),
        PublishedResult("NoStruct", HESSEL_CROWD, 84.2, 21.4, 15.6),
        PublishedResult("DC", HESSEL_CROWD, 94.9, 64.6, 44.8),
        PublishedResult("TK", HESSEL_CROWD, 95.2, 65.6, 45.3),
        PublishedResult("AP", HESSEL_CROWD, 95.3, 65.5, 45.7),
    ),
    "rqa": (
        PublishedResult("Random", HESSEL_ORGANIC, 49.4, 17.8, 16.7),
        PublishedResult("Object detection", HESSEL_ORGANIC, 58.7, 25.1, 21.5),
        PublishedResult("NoStruct", HESSEL_ORGANIC, 60.5, 33.8, 27.0),
        PublishedResult("DC", HESSEL_ORGANIC, 63.5, 38.3, 30.6),
        PublishedResult("TK", HESSEL_ORGANIC, 67.9, 44.0, 35.8),
        PublishedResult("AP", HESSEL_ORGANIC, 69.3, 47.3, 37.3),
    ),
    "diy": (
        PublishedResult("Random", HESSEL_ORGANIC, 49.8, 6.3, 6.8),
        PublishedResult("Object detection", HESSEL_ORGANIC, 53.4, 17.9, 11.8),
        PublishedResult("NoStruct", HESSEL_ORGANIC, 57.0, 13.3, 11.8),
        PublishedResult("DC", HESSEL_ORGANIC, 59.3, 20.8, 16.1),
        PublishedResult("TK", HESSEL_ORGANIC, 60.5, 21.2, 16.0),
        PublishedResult("AP", HESSEL_ORGANIC, 61.8, 22.5, 17.2),
    ),
}
