"""Corpora of documents of images and texts that other projects publish, read shard by shard."""
