"""Simulated balls: Bouncing Balls and Blinking Color Balls."""
