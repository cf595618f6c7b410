"""A bundle as an installable wheel: the same files give the same bytes, wherever it is written.

Entries are sorted, dated 1980-01-01 and stored without compression (whose bytes depend on the zlib at
hand). The wheel requires nothing: it is data that the flymono of a server checks, and a requirement could
bring another package of that name from an index.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping

from ... import __version__
from .find import ENTRY_POINTS, entry_name

_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16


def package_name(arch: str, tp: int) -> str:
    """The importable package of a bundle, which is also its distribution's name."""
    return f"flymono_bundle_{arch}_tp{tp}"


def wheel_name(arch: str, tp: int) -> str:
    """The file name that pip needs."""
    return f"{package_name(arch, tp)}-{__version__}-py3-none-any.whl"


def wheel_bytes(arch: str, tp: int, files: Mapping[str, bytes]) -> bytes:
    """The wheel that holds `files` (names below the bundle's root)."""
    package = package_name(arch, tp)
    info = f"{package}-{__version__}.dist-info"
    held = {f"{package}/__init__.py": _init(arch, tp), **{f"{package}/{k}": v for k, v in files.items()}}
    held |= {f"{info}/{name}": text.encode() for name, text in _metadata(arch, tp, package).items()}
    record = "".join(f"{name},{_hash(data)},{len(data)}\n" for name, data in sorted(held.items()))
    held[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(held.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system, entry.external_attr = 3, _MODE  # as on Unix, on every system
            archive.writestr(entry, data)
    return out.getvalue()


def _init(arch: str, tp: int) -> bytes:
    return f'"""Code objects of flymono for {arch}, TP{tp}: data, found by entry point."""\n'.encode()


def _metadata(arch: str, tp: int, package: str) -> dict[str, str]:
    name = package.replace("_", "-")
    about = f"flymono's code objects for {arch}, TP{tp}"
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {__version__}\nSummary: {about}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: flymono\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[{ENTRY_POINTS}]\n{entry_name(arch, tp)} = {package}\n",
    }


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + digest.decode().rstrip("=")
