"""Look at the data sets of a lake."""
