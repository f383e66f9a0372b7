"""From a text or a picture to a ranking of an archive: queries, search, interleaving, evaluation."""
