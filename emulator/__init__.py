"""The CPU device: executes the code object that a GPU would load.

``CodeObject`` (codeobject.py) reads the ELF, ``Emulator`` (device.py) runs its kernels on registered host
memory, ``execute`` (execute.py) runs single instructions. The C++ core behind all three is ``_core`` (core/).
"""

from .. import __version__ as __version__  # a bare "import emulator" fails here on purpose
from ._core import implemented_ops as implemented_ops
from .codeobject import CodeObject as CodeObject
from .codeobject import CodeObjectError as CodeObjectError
from .codeobject import Kernel as Kernel
from .device import EmulationError as EmulationError
from .device import Emulator as Emulator
from .device import Finding as Finding
from .device import Job as Job
from .device import LaunchResult as LaunchResult
from .device import Roster as Roster
from .device import StageSpan as StageSpan
from .device import Traffic as Traffic
from .device import pack_arguments as pack_arguments
from .execute import State as State
from .execute import execute as execute
