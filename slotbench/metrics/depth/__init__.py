"""Scores of predicted depth, and its baselines."""
