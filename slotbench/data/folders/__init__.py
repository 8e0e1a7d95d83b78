"""The user's own videos and masks."""
