"""MLflow's map of the installed packages, made at import: a second, which a process that forks loggers pays once."""

from mlflow.utils.requirements_utils import warn_dependency_requirement_mismatches

warn_dependency_requirement_mismatches(["mlflow"])
