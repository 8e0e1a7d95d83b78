"""Objects in predicted frames: tracking, identity of cells, foreground, and which cells matter."""
