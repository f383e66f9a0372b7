"""What a command does with data sets of a lake and models of the registry: plain functions from arguments to a summary.

A summary has lines for a person and values for a machine. Parsing, printing and exit statuses are the command's
(`orchestration/commands/`). Training is in `mlflow/tracked_training.py`, promotion and serving are in `mlflow/`. A
function that takes long calls `say` with each line of progress.
"""
