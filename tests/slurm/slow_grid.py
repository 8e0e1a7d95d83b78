"""An experiment small enough to train in seconds, on data that can be slowed down."""

from pathlib import Path

PLUGIN = Path(__file__).with_name("slow_balls.py")

BASE = """
model:
  class_path: VideoPrediction
  init_args:
    encoder: {class_path: PatchEncoder, init_args: {dim: 8, patch_size: 4, hidden_dim: 8}}
    core: {class_path: SlotSSM, init_args: {num_slots: 2, dim: 8, num_layers: 1, num_heads: 2, encoder_layers: 1}}
    decoder: {class_path: TransformerDecoder, init_args: {dim: 8, num_layers: 1, num_heads: 2, patch_size: 4}}
    context: 2
    horizon: 2
data: {class_path: SlowBalls}
trainer: {max_steps: 40, val_check_interval: 20, check_val_every_n_epoch: null, num_sanity_val_steps: 0,
          accelerator: cpu, enable_progress_bar: false, log_every_n_steps: 1}
"""
