"""The HIP runtime that calls go to: the one that torch has mapped, through AMD's own bindings.

Invariants
 - One process has one HIP runtime. Streams, pointers and captures of another copy mean nothing to torch's,
   so two mapped copies are refused, and the bindings are bound to the mapped one before their first call.
 - Every entry point that is used stands in `ENTRY_POINTS`; one that the library lacks is an error with its
   name.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flymono.runtime.devices.gpu import GpuError

NAME = "libamdhip64.so"

ENTRY_POINTS = {
    "hipSetDevice": "hipSetDevice",
    "hipGetDeviceProperties": "hipGetDevicePropertiesR0600",
    "hipDeviceSynchronize": "hipDeviceSynchronize",
    "hipDeviceEnablePeerAccess": "hipDeviceEnablePeerAccess",
    "hipGetErrorString": "hipGetErrorString",
    "hipExtMallocWithFlags": "hipExtMallocWithFlags",
    "hipMalloc": "hipMalloc",
    "hipFree": "hipFree",
    "hipHostMalloc": "hipHostMalloc",
    "hipHostFree": "hipHostFree",
    "hipMemset": "hipMemset",
    "hipIpcGetMemHandle": "hipIpcGetMemHandle",
    "hipIpcOpenMemHandle": "hipIpcOpenMemHandle",
    "hipIpcCloseMemHandle": "hipIpcCloseMemHandle",
    "hipModuleLoadData": "hipModuleLoadData",
    "hipModuleGetFunction": "hipModuleGetFunction",
    "hipModuleUnload": "hipModuleUnload",
    "hipModuleLaunchKernel": "hipModuleLaunchKernel",
    "hipStreamCreateWithFlags": "hipStreamCreateWithFlags",
    "hipStreamSynchronize": "hipStreamSynchronize",
    "hipStreamIsCapturing": "hipStreamIsCapturing",
    "hipStreamBeginCapture": "hipStreamBeginCapture",
    "hipStreamEndCapture": "hipStreamEndCapture",
    "hipGraphInstantiate": "hipGraphInstantiate",
    "hipGraphLaunch": "hipGraphLaunch",
    "hipGraphDestroy": "hipGraphDestroy",
    "hipGraphExecDestroy": "hipGraphExecDestroy",
}
"""What we call of the bindings, and the symbol of the library behind it."""

_INSTALL = "pip install 'flymono[hip]' beside a ROCm build of torch"


def mapped_libraries(maps: str | None = None) -> list[Path]:
    """The HIP runtimes that this process has mapped, each once however it was named.

    `maps`: the text of /proc/self/maps.
    """
    if maps is None:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    found = dict[tuple[str, str], Path]()
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and Path(fields[5]).name.startswith(NAME):
            found.setdefault((fields[3], fields[4]), Path(fields[5]))  # device and inode
    return list(found.values())


class Hip:
    """Calls into the HIP runtime. `hip.call("hipMalloc", 16)` gives what the call gives, or raises
    GpuError."""

    def __init__(self) -> None:
        before = _the_mapped()
        self._hip = _bindings(before)
        self.library = before or _bound(self._hip)
        self._refuse_missing()
        self._success = self._hip.hipError_t.hipSuccess
        self._calls: dict[str, Callable[..., tuple[Any, ...]]] = {
            name: getattr(self._hip, name) for name in ENTRY_POINTS
        }

    def _refuse_missing(self) -> None:
        lacking = [symbol for symbol in ENTRY_POINTS.values() if not self._hip.has_symbol(symbol)]
        if lacking:
            raise GpuError(
                f"{self.library} has no {', '.join(lacking)}", fix="use the HIP runtime of ROCm 7 or later"
            )

    def constant(self, enumeration: str, name: str) -> Any:
        """A value of one of HIP's enumerations."""
        return getattr(getattr(self._hip, enumeration), name)

    def call(self, name: str, *arguments: Any) -> Any:
        """What the entry point gives: nothing, a value, or a tuple. Raises GpuError with its name and
        reason."""
        error, *values = self._calls[name](*arguments)
        if error != self._success:
            raise GpuError(f"{name}: {self.reason(error)}")
        return values[0] if len(values) == 1 else tuple(values) or None

    def raw(self, name: str) -> Callable[..., tuple[Any, ...]]:
        """The entry point itself, which gives (error, ...): for calls that must cost nothing more."""
        return self._calls[name]

    def export_ipc(self, address: int) -> bytes:
        """HIP's handle of an allocation."""
        return bytes(self.call("hipIpcGetMemHandle", address).reserved)

    def open_ipc(self, raw: bytes, flags: int) -> int:
        """Where the memory of a handle is mapped now."""
        held = (ctypes.c_uint8 * len(raw)).from_buffer_copy(raw)
        handle = self._hip.hipIpcMemHandle_st.fromObj(ctypes.addressof(held))
        return int(self.call("hipIpcOpenMemHandle", handle, flags))

    def reason(self, error: Any) -> str:
        """An error's name and HIP's words for it."""
        words = str(self._calls["hipGetErrorString"](error)[-1])
        return f"{error.name}: {words}" if words and words != error.name else str(error.name)


def _the_mapped() -> Path | None:
    """The runtime that torch has brought. Raises GpuError when there are two."""
    found = mapped_libraries()
    if len(found) > 1:
        raise GpuError(
            f"two HIP runtimes are mapped into this process: {' and '.join(map(str, found))}",
            fix="start it with one of them only: streams and pointers of one mean nothing to the other",
        )
    return found[0] if found else None


def _bindings(library: Path | None) -> Any:
    """AMD's module, bound to `library`, or to what it finds itself if that is None."""
    try:
        paths: Any = importlib.import_module("rocm.bindings.util.paths")
        hip: Any = importlib.import_module("rocm.bindings.hip")
    except ImportError as error:
        raise GpuError(f"AMD's HIP bindings cannot be imported ({error})", fix=_INSTALL) from error
    if library is None:
        return hip
    found = paths.get_library_path
    paths.get_library_path = lambda name, *rest: (
        os.fsencode(library) if name == "amdhip64" else found(name, *rest)
    )
    try:
        hip.has_symbol("hipSetDevice")  # the first use: it looks the path up and keeps it
    finally:
        paths.get_library_path = found
    _bound(hip)
    return hip


def _bound(hip: Any) -> Path:
    """The library that the bindings use. Raises GpuError when there is none, or a second one now."""
    if not hip.has_symbol("hipSetDevice"):
        raise GpuError(f"no HIP runtime: {NAME} is neither mapped by torch nor found", fix=_INSTALL)
    mapped = _the_mapped()
    if mapped is None:
        raise GpuError(f"{NAME} was loaded, but this process does not show it as mapped")
    return mapped
