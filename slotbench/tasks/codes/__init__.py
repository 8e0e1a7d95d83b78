"""Frames as discrete codes: the training of a tokenizer, and slots that predict its codes."""
