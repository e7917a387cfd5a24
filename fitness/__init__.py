"""Kernel + task + device -> outcome. Knows nothing of populations or models."""
