"""What editors decided about pictures: a log that only grows, the data set made of it, and blind comparisons."""
