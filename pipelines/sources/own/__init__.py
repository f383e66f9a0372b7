"""The user's own documents: rows of JSON Lines, and pages of HTML, Markdown and EPUB."""
