"""MLflow's map of the installed packages, made at import: a second, which a process pays once for all its forks."""

from mlflow.utils.requirements_utils import warn_dependency_requirement_mismatches

warn_dependency_requirement_mismatches(["mlflow"])
