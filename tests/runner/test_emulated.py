"""GPUs of an emulated node, with the smallest kernel that ships: queues, capture, memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache, partial

import pytest
import torch
from serving import on_ranks, specs
from torch import Tensor

from flymono.reference.case import make_case
from flymono.reference.front import key_table
from flymono.reference.layer_sizes import LayerSizes
from flymono.runtime.devices.base import Touched
from flymono.runtime.devices.emulated import EmulatedGpu, EmulatedNode
from flymono.runtime.devices.gpu import GpuError
from flymono.runtime.devices.null import NullGpu
from flymono.runtime.plan import BuildKey, plan_of
from flymono.runtime.run.modules import Generated
from flymono.runtime.runner.calls import Call
from flymono.runtime.runner.modules import Built

ARCH, KEY = "gfx942", BuildKey("keylist", "gfx942", 4, 6, 2)


@cache
def code() -> tuple[bytes, str]:
    return Generated(specs()).code(plan_of(specs(), KEY))


class KeyList:
    """The key-list launch on a GPU, with inputs of a seed that can be changed in place."""

    def __init__(self, gpu: EmulatedGpu, seed: int = 0) -> None:
        (model,) = specs().model.values()
        self.gpu, self.plan, self.sizes = gpu, plan_of(specs(), KEY), LayerSizes.of(model, KEY.tp)
        self.case = make_case(model, rows=KEY.rows, tp=KEY.tp, ratio=2, index=True, seed=seed, fp8="fnuz")
        self.tensors: dict[str, Tensor] = {
            n: getattr(self.case, n).clone()
            for n in ("pos", "slot", "swa_idx", "swa_lens", "comp_bt", "topk", "t2r")
        }
        self.kt, self.klen = (
            torch.zeros(n, dtype=torch.int32) for n in (KEY.rows * self.sizes.keys, 2 * KEY.rows)
        )
        held = {"kt": self.kt, "klen": self.klen}
        constants = {n: t.data_ptr() for n, t in held.items()}
        self.call = Call(Built(self.plan, gpu.load(*code())), constants, held, 0)

    def launch(self) -> None:
        values = {n: t.data_ptr() for n, t in self.tensors.items()}
        values |= {"comp_block": self.case.comp_block, "bt_stride": self.case.bt_stride}
        self.call.launch(self.gpu, 0, values, self.tensors)

    def wanted(self) -> Tensor:
        return key_table(self.case, self.sizes)[0].reshape(-1)

    @property
    def right(self) -> bool:
        return torch.equal(self.kt, self.wanted())


@pytest.fixture
def node() -> EmulatedNode:
    return EmulatedNode(specs(), ARCH, 2, patience=20)


def test_a_launch_returns_at_once_and_runs_when_its_rank_is_synchronised(node: EmulatedNode) -> None:
    ran: list[tuple[int, str]] = []
    node.on_done = lambda rank, kernel, counters: ran.append((rank, kernel))
    one, other = (KeyList(gpu, seed) for seed, gpu in enumerate(node.gpus))
    one.launch()
    other.launch()
    assert not one.kt.any() and ran == []
    node.gpus[0].synchronise()
    assert one.right and other.right, "queues of all ranks run side by side"
    assert {rank for rank, _ in ran} == {0, 1} and all(kernel == code()[1] for _, kernel in ran)


def test_what_is_captured_runs_at_replays_and_reads_memory_as_it_is_then(node: EmulatedNode) -> None:
    gpu = node.gpus[0]
    keys = KeyList(gpu)
    with gpu.capture() as graphs:
        assert gpu.is_capturing()
        keys.launch()
    gpu.synchronise()
    assert not keys.kt.any() and not gpu.is_capturing()
    graphs[0].replay()
    gpu.synchronise()
    assert keys.right
    keys.tensors["slot"][0] = -1  # the row is a padded one now
    for _ in range(2):
        graphs[0].replay()
    gpu.synchronise()
    assert (keys.kt[: keys.sizes.keys] == -1).all() and not keys.right


@pytest.mark.parametrize("what", ["allocate", "load", "open", "synchronise"])
def test_what_a_replay_would_not_do_is_refused_inside_a_capture(node: EmulatedNode, what: str) -> None:
    gpu, other = node.gpus
    handle = other.export(other.allocate(512, "peer"))
    does = {
        "allocate": partial(gpu.allocate, 16), "load": partial(gpu.load, *code()),
        "open": partial(gpu.open, handle), "synchronise": gpu.synchronise,
    }  # fmt: skip
    with pytest.raises(GpuError, match="inside a capture"), gpu.capture():
        does[what]()
    assert not gpu.is_capturing(), "an error ends the capture"
    does[what]()


def test_host_code_between_launches_runs_in_its_place_also_in_a_replay(node: EmulatedNode) -> None:
    gpu = node.gpus[0]
    keys = KeyList(gpu)
    seen: list[bool] = []
    keys.launch()
    gpu.in_order(lambda: seen.append(keys.right))
    assert seen == [True]
    keys.kt.zero_()
    with gpu.capture() as graphs:
        keys.launch()
        gpu.in_order(lambda: seen.append(keys.right))
        gpu.in_order(keys.kt.zero_)
    assert seen == [True]
    for _ in range(2):
        graphs[0].replay()
    gpu.synchronise()
    assert seen == [True] * 3 and not keys.kt.any()


def _shared(keys: KeyList, memory: object, address: int) -> None:
    """Launch `keys` as one that touches memory of other ranks."""
    touched = keys.call.touched

    def with_peers(*how: object) -> Sequence[Touched]:
        return [*touched(*how), Touched("peer buffer", address, 512, True, shared=True, keep=memory)]  # type: ignore[arg-type]

    keys.call.touched = with_peers  # type: ignore[method-assign]
    keys.launch()


def test_launches_with_other_ranks_wait_for_theirs_and_others_do_not(node: EmulatedNode) -> None:
    memory = node.gpus[0].allocate(512, "peer")
    first, second, peer = KeyList(node.gpus[0]), KeyList(node.gpus[0], 1), KeyList(node.gpus[1], 2)
    _shared(first, memory, memory.address)
    peer.launch()
    node.gpus[1].synchronise()
    assert peer.right and not first.kt.any(), "what shares nothing runs; the other waits for its peer"
    second.launch()
    thread = threading.Thread(target=node.gpus[0].synchronise)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive() and not first.kt.any() and not second.kt.any()
    _shared(peer, memory, memory.address)
    thread.join(15)
    assert not thread.is_alive() and first.right and second.right


def test_a_launch_whose_peers_never_come_runs_alone_after_a_while() -> None:
    node = EmulatedNode(specs(), ARCH, 2, patience=0.3)
    memory = node.gpus[0].allocate(512, "peer")
    keys = KeyList(node.gpus[0])
    _shared(keys, memory, memory.address)
    node.gpus[0].synchronise()
    assert keys.right


def test_a_finding_names_kernel_and_argument_and_ends_the_node(node: EmulatedNode) -> None:
    keys = KeyList(node.gpus[0])
    keys.tensors["topk"] = keys.tensors["topk"][:2]
    keys.call.touched = partial(_short, keys.call.touched)  # type: ignore[method-assign]
    keys.launch()
    with pytest.raises(GpuError) as raised:
        node.gpus[0].synchronise()
    assert code()[1] in str(raised.value) and "topk" in str(raised.value)
    for again in (node.gpus[0].synchronise, node.gpus[1].synchronise, keys.launch):
        with pytest.raises(GpuError, match="topk"):
            again()


def _short(touched: object, *how: object) -> list[Touched]:
    found = touched(*how)  # type: ignore[operator]
    return [t if t.name != "topk" else Touched("topk", t.address, 2 * 512 * 4, False) for t in found]


def test_arguments_in_one_block_of_memory_are_one_buffer(node: EmulatedNode) -> None:
    """A server's caches lie in one another's gaps."""
    gpu = node.gpus[0]
    keys = KeyList(gpu)
    whole = torch.zeros(4096, dtype=torch.int64)
    for name, at in (("pos", 0), ("slot", 3)):  # slot begins inside pos's bytes
        whole[at : at + KEY.rows] = keys.tensors[name]
        keys.tensors[name] = whole[at : at + KEY.rows]
    keys.launch()
    gpu.synchronise()
    assert keys.klen.any()


def test_peer_memory_is_the_same_in_one_process(node: EmulatedNode) -> None:
    one, other = node.gpus
    memory = one.allocate(1000, "peer")
    assert memory.address % 256 == 0 and not memory.tensor.any()
    handle = one.export(memory)
    assert isinstance(handle, bytes) and other.open(handle).address == memory.address
    with pytest.raises(GpuError, match="device memory cannot be shared"):
        one.export(one.allocate(16))
    one.free(memory)
    for bad in (handle, b"", handle[:-1]):
        with pytest.raises(GpuError, match="cannot open"):
            other.open(bad)


@pytest.mark.parametrize("bad", [b"", b"\x7fELF", b"\0" * 4096])
def test_code_that_is_none_is_refused(node: EmulatedNode, bad: bytes) -> None:
    with pytest.raises(GpuError, match="loading some_kernel"):
        node.gpus[0].load(bad, "some_kernel")
    with pytest.raises(GpuError, match="the code object has"):
        node.gpus[0].load(code()[0], "some_kernel")
    with pytest.raises(GpuError, match="code for"):
        EmulatedNode(specs(), "gfx950", 1).gpus[0].load(*code())


def test_ranks_may_be_driven_from_a_thread_each(node: EmulatedNode) -> None:
    keys = [KeyList(gpu, seed) for seed, gpu in enumerate(node.gpus)]

    def serve(rank: int) -> bool:
        for _ in range(3):
            keys[rank].launch()
            node.gpus[rank].synchronise()
        return keys[rank].right

    assert on_ranks(2, serve) == [True, True]


def test_the_null_gpu_does_nothing_and_refuses_what_others_refuse() -> None:
    gpu = NullGpu("gfx942")
    keys = KeyList(gpu)  # type: ignore[arg-type]
    keys.launch()
    assert gpu.launches == 1 and not keys.kt.any()
    gpu.capturing = True
    with pytest.raises(GpuError, match="inside a capture"):
        gpu.allocate(16)
