"""Comparing runs: from run folders, grids, CSV files and W&B projects to one frame, a table, and a page.

Nothing here imports torch.
"""
