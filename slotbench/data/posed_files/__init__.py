"""Readers of files that show scenes from several posed cameras."""
