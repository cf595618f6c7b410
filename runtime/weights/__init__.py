"""A layer's weights: reading the published file, making a seeded one, re-encoding for a device."""

from .copies import copy_into, device_copies
from .errors import WeightFinding, WeightsError
from .fp4_copies import routed_bytes, routed_copies
from .held import LayerCopies, held_copies
from .held_names import held_tensors
from .layer_copies import back_copies, ffn_copies, ffn_copies_of_ranks
from .read import check_k1_weights, read_k1_weights
from .read_layer import check_layer_weights, read_layer
from .seeded import make_seeded_file, seeded_file
from .seeded_layer import make_layer_file, save_layer

__all__ = [
    "LayerCopies",
    "WeightFinding",
    "WeightsError",
    "back_copies",
    "check_k1_weights",
    "check_layer_weights",
    "copy_into",
    "device_copies",
    "ffn_copies",
    "ffn_copies_of_ranks",
    "held_copies",
    "held_tensors",
    "make_layer_file",
    "make_seeded_file",
    "read_k1_weights",
    "read_layer",
    "routed_bytes",
    "routed_copies",
    "save_layer",
    "seeded_file",
]
