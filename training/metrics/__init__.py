"""What is measured, as plain functions from arrays to numbers: no model, no lake, no page."""
