"""Reading a data set version for training: ragged arrays of a worker's own shards, and global batches over all of them."""
