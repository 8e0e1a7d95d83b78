"""Labels of clips: how they are shown, and what the slots looked at."""
