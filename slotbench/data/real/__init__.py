"""Readers of released sets of real videos, with the official lists of their videos."""
