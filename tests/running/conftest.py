"""Caches of each test's own, and a hub."""

from own_caches import large, own_caches, serve

__all__ = ["large", "own_caches", "serve"]
