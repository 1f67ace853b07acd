"""Checkpoints, their anatomy, what flows through them and what leaves them unchanged."""
