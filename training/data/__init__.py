"""Reading a data set version for training: ragged arrays of a worker's own documents, global batches over all."""
