"""Host side: plans, devices, weight copies, running a build."""

from .. import __version__ as __version__  # a bare "import runtime" fails here on purpose
