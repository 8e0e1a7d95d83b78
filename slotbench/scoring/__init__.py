"""Scores of anybody's masks against the truth: files in, rules that are said, one record out. No model is needed."""
