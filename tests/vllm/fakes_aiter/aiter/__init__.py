"""Stands for AITER where vLLM asks whether it is there and for its two shuffles; there are no kernels in it."""
