"""An architecture by the name that ``config.json`` gives it, or by its family and another head."""

from collections.abc import Mapping
from typing import Any

from provlab.models.architectures import IN_FULL
from provlab.models.parts import Architecture


def described(name: str) -> Architecture:
    """Return the entry of an architecture, or that of its family with another head, whose tensors stay unnamed.

    Raises
    ------
    UnknownArchitectureError
        No entry for the family.
    """
    if name in IN_FULL:
        return IN_FULL[name]
    from provlab.models.naming import found  # whoever compares Llamas needs no other families

    return found(name)


def sees(config: Mapping[str, Any]) -> bool:
    """Whether a config is that of a model that does more than language."""
    return not {"text_config", "vision_config"}.isdisjoint(config)
