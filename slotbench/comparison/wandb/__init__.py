"""Runs of Weights & Biases, read for a comparison."""
