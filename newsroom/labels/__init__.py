"""The links of a data set version, read from the lake: documents, a sample to label, and what the labels say."""
