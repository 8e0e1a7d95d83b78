"""A comparison as text: terminal, CSV, Markdown, LaTeX."""
