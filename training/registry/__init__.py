"""Trained models by name and version in MLflow: storing, finding and loading them, and who is champion."""
