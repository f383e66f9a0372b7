"""What is minimised: sums of terms, a module each in `terms/`."""
