"""What vLLM's ROCm platform asks of amdsmi: one GPU, of the arch that FLYMONO_TEST_ARCH names."""

import os


class AmdSmiException(Exception):
    """Never raised here."""


class AmdSmiMemoryType:
    """Kinds of memory."""

    VRAM = 0


def amdsmi_init(*_):
    """Nothing to open."""


def amdsmi_shut_down():
    """Nothing to close."""


def amdsmi_get_processor_handles():
    """The one GPU."""
    return [0]


def amdsmi_get_gpu_asic_info(_):
    """Its arch."""
    return {
        "target_graphics_version": os.environ["FLYMONO_TEST_ARCH"],
        "device_id": "0x74a5",
        "market_name": "none",
    }


def amdsmi_get_gpu_device_uuid(_):
    """Its name."""
    return "0"


def amdsmi_get_gpu_memory_total(*_):
    """256 GiB."""
    return 256 << 30


def amdsmi_topo_get_link_type(*_):
    """XGMI, one hop."""
    return {"hops": 1, "type": 2}


def amdsmi_topo_get_numa_node_number(_):
    """The first node."""
    return 0
