"""The flymono command."""

from .. import __version__ as __version__  # a bare "import cli" fails here on purpose
