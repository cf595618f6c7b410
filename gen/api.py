"""What other folders call: render, build and load by build key.

>>> artefact = build(BuildKey.parse("dsv41_k1-gfx942-tp4-s6-r2"))  # doctest: +SKIP
>>> artefact.hsaco, artefact.resources, artefact.stage_ranges  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ..runtime.plan import BuildKey
from ..specs.loader import Specs
from ..specs.loader import load as load_specs
from . import build as builder
from . import probes, store
from .build import Outcome, Settings, linted
from .findings import Finding, StoreError
from .render import Rendered
from .store import Artefact, Store
from .units import unit_of


def render(key: BuildKey, specs: Specs | None = None) -> Rendered:
    """The generated module of `key`, linted. Raises Unsupported, RenderError or LintError."""
    return linted(unit_of(specs or load_specs(), key))


def build(key: BuildKey, specs: Specs | None = None, cache: Path | None = None) -> Artefact:
    """The artefact of `key`, from the store or built now.

    Raises Unsupported, or GenError: also where the compiler does not confirm what the arch spec claims.
    """
    loaded = specs or load_specs()
    unit = unit_of(loaded, key)
    settings = Settings(Store(cache))
    probes.require(loaded.arch[key.arch], settings.store.root)
    return builder.build(unit, settings)[0]


def build_all(
    keys: Iterable[BuildKey],
    specs: Specs | None = None,
    cache: Path | None = None,
    jobs: int = 1,
    on_done: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Build many, `jobs` at a time; a failure is an outcome and stops nothing."""
    loaded = specs or load_specs()
    return builder.build_all([unit_of(loaded, k) for k in keys], Settings(Store(cache), jobs=jobs), on_done)


def load(where: Path | str, cache: Path | None = None) -> Artefact:
    """An artefact by folder, or by build id or key prefix in the store; every digest is verified."""
    folder = Path(where)
    if not folder.is_dir():
        found = sorted(Store(cache).root.glob(f"{where}.*")) + sorted(Store(cache).root.glob(f"*.{where}*"))
        found = [f for f in found if ".damaged" not in f.name and (f / store.MANIFEST).is_file()]
        if len(found) != 1:
            text = f"{len(found)} artefacts of the store match" + "".join(
                f"\n        {f.name}" for f in found[:8]
            )
            raise StoreError(
                [Finding("GEN_NO_ARTEFACT", str(where), text, "flymono build makes it; name one exactly")]
            )
        folder = found[0]
    return store.load(folder)
