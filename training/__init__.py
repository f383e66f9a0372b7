"""From a data set version to a registered, promoted model and its links.

The core (data, towers, objectives, loop, evaluation) needs torch, numpy, scipy, pyarrow, msgspec and obstore
alone; `ray/` wires it to Ray, `mlflow/` to MLflow. Both of these report usage to their makers by default: here they do
not, unless the environment asks for it. Those packages read the switches when imported, hence here.
"""

import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
