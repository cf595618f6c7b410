"""Memory that ranks in several processes share, and what each rank says of itself there.

Invariants
 - A segment is an anonymous file of the process that made it. It has no name that could be left behind: when
   its processes have ended, however they did, it is gone.
 - A handle names process, file and inode, so that one that came too late never maps something else.
 - A rank's record is written by its own process alone (emulator: RANK_RECORD_BYTES, RANK_STATES).
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass

import torch

from flymono.emulator.device import RANK_RECORD_BYTES, RANK_STATES

_FILE = struct.Struct("<IIQQ")  # process, descriptor, inode, bytes
_RECORD_HEAD = struct.Struct("<II")
_RANK_AT = 16


class SegmentError(OSError):
    """A segment that cannot be made or mapped."""


@dataclass(eq=False)
class Segment:
    """Zeroed pages, mapped; `tensor` is uint8 [nbytes] over them. `handle` lets another process map them."""

    tensor: torch.Tensor
    handle: bytes
    descriptor: int

    @classmethod
    def create(cls, name: str, nbytes: int) -> Segment:
        """New memory. Raises SegmentError when there is none."""
        try:
            descriptor = os.memfd_create(f"flymono-{name}", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, nbytes)
            inode = os.fstat(descriptor).st_ino
            return cls(
                _mapped(descriptor, nbytes), _FILE.pack(os.getpid(), descriptor, inode, nbytes), descriptor
            )
        except OSError as error:
            raise SegmentError(f"no shared memory of {nbytes} bytes: {error.strerror}") from error

    @classmethod
    def attach(cls, handle: bytes) -> Segment:
        """The memory of a handle. Raises SegmentError when its process is gone or does not let us."""
        process, there, inode, nbytes = _FILE.unpack(handle)
        try:
            descriptor = os.open(f"/proc/{process}/fd/{there}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise SegmentError(f"process {process} does not show its memory: {error.strerror}") from error
        found = os.fstat(descriptor)
        if (found.st_ino, found.st_size) != (inode, nbytes):
            os.close(descriptor)
            raise SegmentError(f"process {process} has freed this memory")
        return cls(_mapped(descriptor, nbytes), handle, descriptor)

    @property
    def address(self) -> int:
        """Where this process has it."""
        return self.tensor.data_ptr()

    def close(self) -> None:
        """Others cannot map it any more; it stays mapped here as long as its tensor lives."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


HANDLE_BYTES = _FILE.size


def _mapped(descriptor: int, nbytes: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(descriptor, nbytes, mmap.MAP_SHARED), dtype=torch.uint8)


class Record:
    """This rank's own record, in a segment of its own."""

    def __init__(self, rank: int) -> None:
        self.segment = Segment.create(f"rank-{rank}", RANK_RECORD_BYTES)
        self._words = memoryview(self.segment.tensor.numpy())
        struct.pack_into("<I", self._words, _RANK_AT, rank)
        self.say("resting")

    def say(self, state: str) -> None:
        """What the rank does now: one of RANK_STATES."""
        _RECORD_HEAD.pack_into(self._words, 0, os.getpid(), RANK_STATES.index(state))
