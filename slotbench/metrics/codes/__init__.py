"""Scores of discrete codes."""
