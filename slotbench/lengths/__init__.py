"""Memory and identity on clips longer than those of the training: one pass over them, scored at several lengths."""
