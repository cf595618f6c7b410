"""Which bundle a server takes: the one it is told, else FLYMONO_BUNDLE, else the installed one.

An installed bundle is found by its entry point `<arch>-tp<T>`, whose value names the package that holds the
files. The package is looked up and not imported: no code of a bundle runs.
"""

from __future__ import annotations

import os
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from .codes import BundleCode
from .errors import BundleError, BundleFinding
from .manifest import command_of
from .opened import Bundle

VARIABLE = "FLYMONO_BUNDLE"
ENTRY_POINTS = "flymono.bundles"


def entry_name(arch: str, tp: int) -> str:
    """Name of the entry point of a bundle."""
    return f"{arch}-tp{tp}"


def find_bundle(arch: str, tp: int, path: Path | str | None = None) -> Bundle:
    """The bundle of `arch` and `tp`, opened. Raises BundleError."""
    named = str(path or os.environ.get(VARIABLE) or "")
    bundle = Bundle.open(named or _installed(arch, tp))
    if (bundle.arch, bundle.tp) != (arch, tp):
        text = f"the bundle is for {bundle.arch} TP{bundle.tp}, this server has {arch} TP{tp}"
        raise _refused(BundleCode.OTHER, str(bundle.path), text, arch, tp)
    return bundle


def _installed(arch: str, tp: int) -> Path:
    name = entry_name(arch, tp)
    points = {p.value: p for p in entry_points(group=ENTRY_POINTS, name=name)}
    if not points:
        text = f"no bundle is installed as `{name}`, and {VARIABLE} names none"
        fix = f"{command_of(arch, tp)}, then pip install it or set {VARIABLE} to it"
        raise BundleError([BundleFinding(BundleCode.NOT_FOUND, f"{arch} TP{tp}", text, fix)])
    if len(points) > 1:
        owners = ", ".join(sorted(_owner(p) for p in points.values()))
        fix = f"uninstall all but one, or set {VARIABLE} to one of them"
        finding = BundleFinding(BundleCode.SEVERAL, f"{arch} TP{tp}", f"these packages are it: {owners}", fix)
        raise BundleError([finding])
    (point,) = points.values()
    return _folder(point, arch, tp)


def _folder(point: EntryPoint, arch: str, tp: int) -> Path:
    try:
        spec = find_spec(point.value)
    except (ImportError, ValueError):
        spec = None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        text = f"the package {_owner(point)} says that `{point.value}` is the bundle, which is not there"
        raise _refused(BundleCode.NOT_FOUND, point.value, text, arch, tp)
    return Path(folders[0])


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _refused(code: BundleCode, where: str, text: str, arch: str, tp: int) -> BundleError:
    return BundleError([BundleFinding(code, where, text, command_of(arch, tp))])
