"""Text to numbers: tokens, the vocabulary of a training split, and pretrained word vectors."""
