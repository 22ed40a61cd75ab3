"""Tensor parallelism: rank 0 leads, the others do the same to their part of the model."""
