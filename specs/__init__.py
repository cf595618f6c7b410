"""YAML specs and their strict loader."""

from .. import __version__ as __version__  # a bare "import specs" fails here on purpose
