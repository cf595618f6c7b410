"""What a layer computes, written from the model's facts, never from the kernels."""

from .. import __version__ as __version__  # a bare "import reference" fails here on purpose
