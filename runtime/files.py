"""Writing files whole or not at all. Only what writes tensors imports torch and safetensors."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flymono.specs.findings import UserError

if TYPE_CHECKING:
    import torch


class WriteError(UserError):
    """A file could not be written; nothing was left behind."""

    def __init__(self, path: Path, error: OSError | str) -> None:
        reason = error if isinstance(error, str) else error.strerror or str(error)
        full = not isinstance(error, str) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = "free some space; nothing half-written was kept" if full else "name another place"
        super().__init__(f"cannot write {path}: {reason}", fix=fix)


def check_writable(path: Path) -> None:
    """WriteError if a file could not be made at `path`; asked before long work, leaves nothing behind."""
    if path.is_dir():
        raise WriteError(path, "it is a folder")
    there = next(p for p in path.absolute().parents if p.exists())
    if not there.is_dir():
        raise WriteError(path, f"{there} is no folder")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise WriteError(path, error) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that becomes `path` when the block ends without an error."""
    mode = 0o666 & ~_umask()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.fchmod(handle, mode)  # mkstemp makes private files
        os.close(handle)
    except OSError as error:
        raise WriteError(path, error) from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)  # again: a library may have put a private file of its own in its place
        temporary.replace(path)
    except OSError as error:
        raise WriteError(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path`; a full disk or an interrupt leaves the old file, or none."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def save_tensors(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
    """A safetensors file, whole or not at all; WriteError, also where the library has an error of its own."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:  # it tells a full disk by text alone
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
