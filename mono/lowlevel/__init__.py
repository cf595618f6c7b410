"""Every FlyDSL call that FlyDSL does not promise, in one package.

Invariants:

- Nothing else in ``mono/`` imports ``flydsl._mlir`` or names a ROCDL builder or an LLVM intrinsic, so a
  new FlyDSL release is met here and nowhere else.
- Offsets are bytes. An offset is a Python int or an ``Int32``; the constant part of a sum folds into the
  instruction. Values come back as ``Int32``, ``Float32`` or a ``Vector`` of them.
- ``device`` marks a helper whose ``if`` / ``for`` / ``while`` on traced values become control flow of
  the kernel. Such a helper takes plain records and never calls a *method* of one inside such a region
  (FlyDSL would try to carry the record through the branch).
"""

import flydsl.compiler as flyc

from .control import (
    assembly as assembly,
)
from .control import (
    clock as clock,
)
from .control import (
    end_program as end_program,
)
from .control import (
    fresh as fresh,
)
from .control import (
    memory_changes as memory_changes,
)
from .control import (
    opaque as opaque,
)
from .control import (
    sleep as sleep,
)
from .control import (
    spin as spin,
)
from .control import (
    wait_stores as wait_stores,
)
from .memory import (
    SC1 as SC1,
)
from .memory import (
    buffer as buffer,
)
from .memory import (
    buffer_load as buffer_load,
)
from .memory import (
    buffer_store as buffer_store,
)
from .memory import (
    global_load as global_load,
)
from .memory import (
    global_store as global_store,
)
from .memory import (
    lds_block as lds_block,
)
from .memory import (
    lds_load as lds_load,
)
from .memory import (
    lds_store as lds_store,
)
from .values import undef as undef
from .vector import (
    any_lane as any_lane,
)
from .vector import (
    dpp as dpp,
)
from .vector import (
    exp2 as exp2,
)
from .vector import (
    fma as fma,
)
from .vector import (
    gather as gather,
)
from .vector import (
    lane_swap as lane_swap,
)
from .vector import (
    ldexp_one as ldexp_one,
)
from .vector import (
    max_plain as max_plain,
)
from .vector import (
    max_u16x2 as max_u16x2,
)
from .vector import (
    mfma_f32 as mfma_f32,
)
from .vector import (
    mfma_fp8 as mfma_fp8,
)
from .vector import (
    mfma_scaled as mfma_scaled,
)
from .vector import (
    pack_fp8 as pack_fp8,
)
from .vector import (
    perm as perm,
)
from .vector import (
    rcp as rcp,
)
from .vector import (
    read_lane as read_lane,
)
from .vector import (
    rsq as rsq,
)
from .vector import (
    swizzle as swizzle,
)
from .vector import (
    uniform as uniform,
)

device = flyc.jit
