"""The FlyDSL device library that generated kernels call (*mono* kernels: one launch for many)."""

from .. import __version__ as __version__  # a bare "import mono" fails here on purpose
