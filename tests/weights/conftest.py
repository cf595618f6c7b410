"""A model small enough that its whole layer file takes milliseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from flymono.runtime.weights import make_seeded_file
from flymono.specs import load
from flymono.specs.schema import ModelSpec


@pytest.fixture(scope="session")
def full() -> ModelSpec:
    return load().model["deepseek_v41_flash"]


@pytest.fixture(scope="session")
def model(full: ModelSpec) -> ModelSpec:
    attention = full.attention.model_copy(update={"heads": 4, "q_lora_rank": 256, "o_groups": 2})
    return full.model_copy(update={"hidden": 512, "attention": attention})


@pytest.fixture(scope="session")
def layer_file(model: ModelSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_seeded_file(tmp_path_factory.mktemp("weights") / "layer5.safetensors", model, layer=5, seed=3)
