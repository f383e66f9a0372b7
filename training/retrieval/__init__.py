"""From a trained model and a data set version to a searchable archive of its pictures, and from a text to a ranking."""
