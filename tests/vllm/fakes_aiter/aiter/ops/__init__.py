"""Stands for AITER where vLLM asks whether it is there, and for its two shuffles. No kernels."""
