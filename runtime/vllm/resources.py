"""What a server process needs from outside: its ranks, its GPU, its kernels. One place to put others in.

`vLLM`'s are the gloo group of its tensor-parallel group, the HIP device and an installed bundle. `use` puts
others in their place: an emulated GPU and artefacts of a generator (tests), with ranks that are threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from ...specs import Specs
from ..devices.gpu import Gpu
from ..runner import Ranks

if TYPE_CHECKING:
    from ..bundle import Bundle
    from ..plan import KernelPlan


class Kernels(Protocol):
    """Code objects by build id (`runner.Modules`), and which there are."""

    @property
    def builds(self) -> frozenset[str] | None: ...  # None: any that the plan admits
    @property
    def arch(self) -> str: ...
    @property
    def id(self) -> str: ...

    def code(self, plan: KernelPlan) -> tuple[bytes, str]:
        """The code object of a build and the symbol of its kernel. Raises BundleError."""
        ...


class Resources(Protocol):
    """Where a server takes them from."""

    def ranks(self) -> Ranks:
        """This process's end of the tensor-parallel group."""
        ...

    def gpu(self, specs: Specs) -> Gpu:
        """This process's GPU."""
        ...

    def kernels(self, specs: Specs, arch: str, tp: int) -> Kernels:
        """The kernels of an arch at a TP size. Raises BundleError."""
        ...


class OneRank:
    """The group of a server without tensor parallelism, for its refusal."""

    rank, size = 0, 1

    def all_gather(self, value: object, seconds: float) -> list[Any]:
        """The value."""
        return [value]


class BundleKernels:
    """A bundle as the runner asks for it."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self.builds: frozenset[str] | None = frozenset(bundle.builds)
        self.arch: str = bundle.arch
        self.id: str = bundle.id

    def code(self, plan: KernelPlan) -> tuple[bytes, str]:
        """Verified bytes and the symbol from the manifest, of a build that agrees with the plan: another
        version of flymono may have planned otherwise from the same specs."""
        self._bundle.check_plan(plan)
        return self._bundle.code(plan.key.id), self._bundle.builds[plan.key.id].kernel


class VllmResources:
    """A server on GPUs. Modules of devices and bundles are looked up when they are needed: a front end needs
    none."""

    def ranks(self) -> Ranks:
        """vLLM's CPU group of its tensor-parallel group."""
        from vllm.distributed import get_tp_group

        from ..runner import GlooRanks

        group = get_tp_group()
        return GlooRanks(group.cpu_group) if group.world_size > 1 else OneRank()

    def gpu(self, specs: Specs) -> Gpu:
        """The current HIP device."""
        import torch

        from ..devices.hip import HipGpu

        return cast(Gpu, HipGpu(specs, torch.cuda.current_device()))

    def kernels(self, specs: Specs, arch: str, tp: int) -> Kernels:
        """The bundle that FLYMONO_BUNDLE names, else the installed one, if it was made from `specs`."""
        from ..bundle import find_bundle

        bundle = find_bundle(arch, tp)
        bundle.check_specs(specs)
        return BundleKernels(bundle)


_current: Resources = VllmResources()


def use(resources: Resources | None) -> None:
    """Take resources from elsewhere; None: from vLLM."""
    global _current
    _current = VllmResources() if resources is None else resources


def current() -> Resources:
    """Where resources come from."""
    return _current
