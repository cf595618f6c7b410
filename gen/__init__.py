"""Render, lint, compile, check and store kernels."""

from .. import __version__ as __version__  # a bare "import gen" fails here on purpose
