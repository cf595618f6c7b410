"""Planted bugs: `REGISTRY` by name, and `launch_of` to see what a kernel with one of them leaves behind."""

from . import gemvs, handoffs, quantisers, records, slices
from .registry import REGISTRY, Planted, launch_of

MODULES = (slices, quantisers, gemvs, records, handoffs)  # importing them fills the registry

__all__ = ["REGISTRY", "Planted", "launch_of"]
