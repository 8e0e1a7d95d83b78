"""Autoregressive roll-outs: their frames, their scores, and a task that is evaluated by them."""
