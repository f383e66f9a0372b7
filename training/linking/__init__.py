"""A trained model and documents with their vectors, to predicted links on disk."""
