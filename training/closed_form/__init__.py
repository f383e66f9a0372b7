"""The recipe without epochs of gradient steps: two affine maps out of sums over the training documents, and an SVD."""
