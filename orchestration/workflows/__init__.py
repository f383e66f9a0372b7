"""Work of both halves that commands call: what lake and registry have of something, pages of documents, evaluations."""
