"""Planted bugs of K2 and the FFN launch: `REGISTRY` by name, `launches_of` for what each leaves behind."""

from . import back, experts, handoffs, routing, seams
from .registry import REGISTRY, Bench, Bug, launches_of

MODULES = (back, seams, routing, experts, handoffs)  # importing them fills the registry

__all__ = ["REGISTRY", "Bench", "Bug", "launches_of"]
