"""Simulated mazes seen by an agent that walks in them."""
