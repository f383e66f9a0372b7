"""A user's own documents: JSON Lines, and pages in HTML, Markdown and EPUB."""
