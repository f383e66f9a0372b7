"""The table of an evaluation: a row for every number that was measured, so that two models can be compared years later.

evaluation.parquet   beside the report, and in the MLflow run of the model
"""

from dataclasses import dataclass

import pyarrow as pa

from schemas.tables import column, table_schema

LEVEL = 0.95  # of every interval


@dataclass(frozen=True, slots=True)
class Score:
    """One measured number.

    Attributes:
        metric: which number it is.
        value: the number; None where it cannot be computed.
        low: lower end of its 95% interval, where there is one.
        high: upper end.
        n: documents, queries, pairs or links behind it.
        group: what it is restricted to (`language=en`, `text to image, 10 samples of 500`); empty: everything.
        measure: what was measured: links, pairs, document, random, another baseline, retrieval, relations, refined
            retrieval, position, analysis, calibration.
        deviation: standard deviation over samples.
        unit: of value, low, high and deviation.
        note: what else a reader must know.
    """

    metric: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    group: str = ""
    measure: str = ""
    deviation: float | None = None
    unit: str = "percent"
    note: str = ""


EVALUATION_SCHEMA = table_schema(
    "evaluation",
    1,
    [
        column("model", pa.string(), "registered name, or the address it was loaded from"),
        column("model_version", pa.string(), "registered version, where there is one", nullable=True),
        column("dataset", pa.string(), "data set it was evaluated on"),
        column("dataset_version", pa.string(), "version of the data set"),
        column("split", pa.string(), "train, val or test"),
        column("measure", pa.string(), "what was measured: links, document, random, retrieval, ..."),
        column("metric", pa.string(), "which number of it"),
        column("group", pa.string(), "what it is restricted to; empty: everything"),
        column("value", pa.float64(), "the number; null where it cannot be computed", nullable=True),
        column("low", pa.float64(), "lower end of its 95% interval", nullable=True),
        column("high", pa.float64(), "upper end of its 95% interval", nullable=True),
        column("deviation", pa.float64(), "standard deviation over samples", nullable=True),
        column("n", pa.int64(), "documents, queries, pairs or links behind it"),
        column("unit", pa.string(), "of value, low, high and deviation"),
        column("note", pa.string(), "what else a reader must know; mostly empty"),
    ],
)
