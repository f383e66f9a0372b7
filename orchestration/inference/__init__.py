"""Links of documents of a user's own, and data sets built for a model that exists."""
