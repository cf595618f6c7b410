"""Scale codes of seeded layers, against their definition a word at a time: inputs must not move."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from flymono.reference.draws import Draws
from flymono.reference.layer_weights import peaked_codes
from flymono.specs import load


class Given(Draws):
    """A stream that yields the words it was given."""

    def __init__(self, words: Tensor) -> None:
        self._words = words

    def words(self, *shape: int) -> Tensor:
        """The words, in `shape`."""
        return self._words.reshape(shape)


def defined(word: int, low: int, high: int) -> int:
    """The code of one 64-bit word."""
    middle = (low + high) // 2 - 1
    zeros = (word & -word).bit_length() - 1 if word else 64
    if zeros >= 3:
        return middle + min(zeros // 3, high - middle)
    spread = word >> 40 & 0xFFFF
    return middle - (spread // 4 % (middle - low + 1) if spread % 4 == 0 else 0)


def ranges() -> list[tuple[int, int]]:
    quant = next(iter(load().model.values())).quantisation
    return [quant.dense_code_range, quant.expert_code_range]


@pytest.mark.parametrize("codes", ranges())
def test_codes_are_those_of_their_definition(codes: tuple[int, int]) -> None:
    drawn = Draws(7, "codes").words(4000)
    rare = torch.tensor([0, -(1 << 63), *(1 << n for n in range(63)), *(-1 << n for n in range(63))])
    words = torch.cat([drawn, rare])
    found = peaked_codes(Given(words), codes, 2, len(words) // 2)
    want = [defined(int(w) & (1 << 64) - 1, *codes) for w in words]
    assert found.dtype == torch.uint8
    assert found.flatten().tolist() == want
    assert {*codes} <= {*want}, "both ends of the range are met"
