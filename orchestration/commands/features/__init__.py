"""Choose an extractor of features."""
