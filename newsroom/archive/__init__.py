"""An archive of pictures: the index of a data set version under a model, its parts, vectors, words and filters."""
