"""A pass over what the host holds of a layer: tensors as they are, viewed, or recovered; findings gather."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...reference.layer_sizes import LayerSizes
from .copies import Flavour, fnuz_refusals
from .dequantised import FIX, as_bytes, published_form
from .errors import WeightFinding
from .held_names import ANY, PLAIN, Shape, linear_shapes, plain_shapes

Held = Mapping[str, Tensor]


class Reading:
    """One pass over what the host holds; findings gather until somebody asks."""

    def __init__(self, held: Held, sizes: LayerSizes) -> None:
        self.held, self.sizes = held, sizes
        self.findings: list[WeightFinding] = []

    def fault(self, path: str, what: str, fix: str = FIX) -> None:
        self.findings.append(WeightFinding("held weights", path, what, fix))

    def as_it_is(self, path: str, dtype: torch.dtype, shape: Shape) -> Tensor | None:
        """The tensor at `path`, verified; a longer sink is cut to the rank's heads."""
        tensor = self.held.get(path)
        if tensor is None:
            self.fault(path, f"missing ({dtype} {list(shape)})", "hand over the whole layer")
            return None
        if path == "attn.attn_sink" and tensor.dim() == 1 and len(tensor) > shape[0]:
            tensor = tensor[: shape[0]]  # the host pads its heads
        fits = tensor.dim() == len(shape) and all(
            want in (ANY, got) for want, got in zip(shape, tensor.shape, strict=True)
        )
        if tensor.dtype != dtype:
            self.fault(path, f"dtype {tensor.dtype}, expected {dtype}")
        if not fits:
            self.fault(path, f"shape {list(tensor.shape)}, expected {list(shape)}", "check TP size and model")
        elif not tensor.is_contiguous():
            self.fault(
                path, f"strides {list(tensor.stride())}: not contiguous", "hand over a contiguous tensor"
            )
        return tensor

    def plain(self, part: str) -> dict[str, Tensor]:
        """Tensors of a launch that need no copy on any arch."""
        wanted = plain_shapes(self.sizes)
        got = {name: self.as_it_is(path, *wanted[path]) for name, path in PLAIN[part].items()}
        return {name: tensor for name, tensor in got.items() if tensor is not None}

    def viewed(self, name: str, path: str) -> dict[str, Tensor]:
        """A linear whose bytes and block codes kernels read in place."""
        rows, columns = linear_shapes(self.sizes)[name]
        block = self.sizes.weight_block
        weight = self.as_it_is(f"{path}.weight", torch.float8_e4m3fn, (rows, columns))
        codes = self.held.get(f"{path}.weight_scale")
        kind = torch.uint8 if codes is None or codes.dtype == torch.uint8 else torch.float8_e8m0fnu
        scale = self.as_it_is(f"{path}.weight_scale", kind, (rows // block, columns // block))
        if weight is None or scale is None or self.findings:
            return {}
        return {name: weight.view(torch.uint8), f"{name}_s": as_bytes(scale)}

    def recovered(self, name: str, path: str, fp8: Flavour) -> tuple[Tensor, Tensor] | None:
        """Published bytes and codes of a linear that is copied; None if there are findings about it."""
        ends = [f"{path}.{end}" for end in ("weight", "weight_scale")]
        missing = [one for one in ends if one not in self.held]
        for one in missing:
            self.fault(one, "missing", "hand over the whole layer")
        if missing:
            return None
        weight, scale = (self.held[one] for one in ends)
        block = self.sizes.weight_block
        got, found = published_form(path, weight, scale, linear_shapes(self.sizes)[name], block)
        if got is not None and fp8 == "fnuz":
            found = fnuz_refusals(ends[0], *got, block, ends[1])
        self.findings += found
        return got
