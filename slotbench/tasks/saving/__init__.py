"""What checkpoints hold of a task: its arguments, and whether the weights of one fit another."""
