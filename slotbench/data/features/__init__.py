"""Features of videos in the place of pixels."""
