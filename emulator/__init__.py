"""The CPU device: executes the code object that a GPU would load."""

from .. import __version__ as __version__  # a bare "import emulator" fails here on purpose
