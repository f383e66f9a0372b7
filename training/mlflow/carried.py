"""A registered model as MLflow's `python_function`: data frame of documents in, data frame of their links out.

MLflow imports this module by its path in the model, where it is called `multilink_model`; nothing here imports it.
Beside it lies `multilink.zip`, the code that registered the model. It is used only where this project is not installed,
so that a model loads wherever the packages are that its requirements name, and no distribution of ours need be named.
Nothing is pickled. The calibration, once an evaluation has made one, lies beside the model's files, so that links have
the same probability here, over HTTP and by `multilink link`.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException

if find_spec("training") is None or find_spec("schemas") is None:
    sys.path.append(str(Path(__file__).with_name("multilink.zip")))

from schemas.messages import UsageError
from training.linking.links import Linker
from training.linking.rows import CAUTION, LINKS, MODEL, READ, SIMILARITIES, answers, documents_of
from training.mlflow.loading import load_logged


class LinkPredictor:
    """What `mlflow.pyfunc.load_model` wraps.

    Args:
        linker: links documents; its model's address, with its version, is part of the answer.
    """

    def __init__(self, linker: Linker) -> None:
        self.linker = linker

    def predict(self, documents: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return a row a document; see `answers`.

        Args:
            documents: `sentences` (n texts) and what the model reads beside them: `image_vectors` (m vectors of its
                image extractor), `sentence_vectors` (n vectors), `region_vectors` and `region_labels` (m lists, the
                most certain region first), `pictures` (m JPEG files in base64), `roles` (n), `language` (one a
                document); lists may be empty and differ in length.
            params: none are known.

        Raises:
            MlflowException: vectors are missing, not finite, or of another size than the model's extractors give; an
                invalid parameter, to which MLflow's server answers with status 400.
        """
        try:
            rows: Any = documents.to_dict("records")
            return pd.DataFrame(
                answers(self.linker, documents_of(self.linker.model, rows)),
                columns=[READ, SIMILARITIES, LINKS, MODEL, CAUTION],
            )
        except UsageError as problem:
            raise MlflowException.invalid_parameter_value(str(problem)) from problem


def _load_pyfunc(path: str) -> LinkPredictor:
    return LinkPredictor(load_logged(Path(path)).linker())
