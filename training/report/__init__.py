"""Pages for people to read: tables, figures, and the templates that put them together. No number is computed here."""
