"""Zeros whose pages are not committed before they are written."""

import math
import mmap

import torch


def lazy_zeros(shape, dtype):
    """A tensor of zeros over fresh pages; reading them commits nothing either."""
    count = math.prod(shape)
    return torch.frombuffer(mmap.mmap(-1, max(count * dtype.itemsize, 1)), dtype=dtype, count=count).view(
        shape
    )
