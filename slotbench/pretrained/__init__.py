"""Frozen networks (AlexNet, I3D, vision transformers), and what reads weights from files."""
