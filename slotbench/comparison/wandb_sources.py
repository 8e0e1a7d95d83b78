"""Runs of Weights & Biases: `read_wandb` asks its server, `read_wandb_offline` reads what is on this machine."""

from slotbench.comparison.wandb_offline import read_wandb_offline
from slotbench.comparison.wandb_online import read_wandb

__all__ = ["read_wandb", "read_wandb_offline"]
