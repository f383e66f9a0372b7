"""The module that MLflow imports to load a registered model: `multilink_model`, logged with the model.

Beside it lies `multilink.zip`, the code that registered the model. It is used only where this project is not installed,
so that a model loads wherever the packages are that its requirements name, and no distribution of ours need be named.
`mlflow.pyfunc` imports this file by its path in the model; nothing here imports it.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("training") is None or find_spec("schemas") is None:
    sys.path.append(str(Path(__file__).with_name("multilink.zip")))

from training.mlflow.pyfunc import _load_pyfunc

__all__ = ["_load_pyfunc"]
