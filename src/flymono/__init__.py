"""flymono: YAML specs of GPUs and models in, checked mono decode kernels out.

The package root only holds the version and relative symlinks to the top-level folders; every
module imports as ``flymono.<folder>``. `docs/architecture.md` draws the flow.
"""

__version__ = "0.1.0"
