"""A layer's weights: reading the published file, making a seeded one, re-encoding for a device."""

from .copies import device_copies
from .errors import WeightFinding, WeightsError
from .read import check_k1_weights, read_k1_weights
from .seeded import make_seeded_file, seeded_file

__all__ = [
    "WeightFinding",
    "WeightsError",
    "check_k1_weights",
    "device_copies",
    "make_seeded_file",
    "read_k1_weights",
    "seeded_file",
]
