"""Reading a data set version for training: ragged arrays of a worker's own shards, global batches over all."""
