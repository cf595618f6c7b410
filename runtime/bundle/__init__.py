"""Bundles: code objects that were compiled before serving, with everything that a server must know of them.

Serving opens, verifies and loads; it never compiles. Nothing here imports `gen`, `mono`, FlyDSL or jinja2,
but for `make`, which only the command line imports.
"""

from .agree import host_digest
from .codes import BundleCode
from .entry import Build
from .errors import BundleError, BundleFinding
from .find import ENTRY_POINTS, VARIABLE, find_bundle
from .manifest import command_of
from .opened import Bundle
from .widths import Gap, gaps, widths

__all__ = [
    "ENTRY_POINTS",
    "VARIABLE",
    "Build",
    "Bundle",
    "BundleCode",
    "BundleError",
    "BundleFinding",
    "Gap",
    "command_of",
    "find_bundle",
    "gaps",
    "host_digest",
    "widths",
]
