"""What is minimised: pure losses of a batch of documents, and the registry that finds one by name."""
