"""`multilink up`: Dagster and MLflow as processes of this machine."""
