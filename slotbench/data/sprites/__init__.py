"""Simulated sprites: flat shapes of plain colours that drift through a frame and cover one another."""
