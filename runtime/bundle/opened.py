"""An opened bundle: a folder or a wheel whose manifest was verified; every file is verified when it is read.

Invariants
 - Bytes are handed out only if length and digest are those of the manifest.
 - An error names each artefact and the command that makes it again; all findings come at once.
 - Nothing is written and nothing is compiled.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from pathlib import Path

from ...specs.loader import Specs
from ..plan import Abi, KernelPlan, Unsupported, plan_of
from .agree import abi_difference, host_digest
from .codes import BundleCode
from .entry import Build, Listed, abi_of
from .errors import BundleError, BundleFinding, refuse_all
from .manifest import ANY_COMMAND, NAME, Manifest, parse

_UNREADABLE = (OSError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)


@dataclass(frozen=True)
class Bundle:
    """Code objects of one arch and TP size. `path` is where the user finds it, `root` where its files are."""

    path: Path
    root: Traversable
    manifest: Manifest

    @classmethod
    def open(cls, path: Path | str) -> Bundle:
        """The bundle at `path`: a folder, or a wheel. Raises BundleError."""
        place = Path(path)
        root = _root(place)
        data = _read(root, NAME)
        if data is None:
            text = "the manifest is missing or cannot be read: this is no bundle"
            raise BundleError([BundleFinding(BundleCode.MANIFEST, f"{place}/{NAME}", text, ANY_COMMAND)])
        return cls(place, root, parse(data, f"{place}/{NAME}"))

    @property
    def arch(self) -> str:
        """The arch spec's name."""
        return self.manifest.arch

    @property
    def tp(self) -> int:
        """The TP size."""
        return self.manifest.tp

    @property
    def id(self) -> str:
        """12 digits that name exactly this content, for logs and for ranks to compare."""
        return self.manifest.seal[:12]

    @property
    def builds(self) -> Mapping[str, Build]:
        """Every build by id."""
        return self.manifest.builds

    def code(self, id: str) -> bytes:
        """The code object of a build. Raises BundleError."""
        return self.load([id])[id]

    def abi(self, id: str) -> Abi:
        """The launch arguments of a build, without their texts. Raises BundleError."""
        refuse_all(self._unknown([id]))
        data, findings = self._verified(self.builds[id].abi)
        refuse_all(findings)
        return abi_of(data)

    def load(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Code objects by id, each with its ABI table verified. Raises BundleError with all that is wrong."""
        wanted = list(dict.fromkeys(ids))
        findings, codes = list(self._unknown(wanted)), dict[str, bytes]()
        for id in wanted:
            if build := self.builds.get(id):
                codes[id], faults = self._verified(build.code)
                findings += faults + self._verified(build.abi)[1]
        refuse_all(findings)
        return codes

    def verify(self) -> None:
        """Read every file. Raises BundleError with everything that is missing or altered."""
        self.load(self.builds)

    def check(self, specs: Specs, ids: Iterable[str] | None = None) -> None:
        """Was this bundle made from `specs`, and do its builds (default: all) agree with the plans made
        from them?

        Plans each build, about 0.1 s a build; whoever has the plans already calls `check_specs` and
        `check_plan`. Raises BundleError with everything that is stale, missing or altered.
        """
        wanted = list(self.builds if ids is None else ids)
        findings = [*self._unknown(wanted), *self._spec_findings(specs)]
        for id in wanted:
            if id in self.builds:
                findings += self._planned(specs, id)
        refuse_all(findings)

    def check_specs(self, specs: Specs) -> None:
        """Only whether the specs are those that the bundle was made from. Raises BundleError."""
        refuse_all(self._spec_findings(specs))

    def check_plan(self, plan: KernelPlan) -> None:
        """Does the build of this plan agree with it? Raises BundleError."""
        refuse_all([*self._unknown([plan.key.id])] or self._plan_findings(plan))

    # ---------------------------------------------------------------- findings

    def finding(self, code: BundleCode, where: str, text: str) -> BundleFinding:
        """A finding about a part of this bundle, with the command that makes it."""
        return BundleFinding(
            code, f"{self.path}/{where}" if where else str(self.path), text, self.manifest.command
        )

    def _unknown(self, ids: Iterable[str]) -> Iterator[BundleFinding]:
        for id in ids:
            if id not in self.builds:
                finding = self.finding(BundleCode.NO_BUILD, id, "the bundle was made without this build")
                yield replace(finding, fix=f"{self.manifest.command} (see --widths and --only)")

    def _verified(self, listed: Listed) -> tuple[bytes, list[BundleFinding]]:
        data = _read(self.root, listed.name)
        if data is None:
            there = self.root.joinpath(listed.name).is_file()
            text = "it cannot be read" if there else "it is missing"
            return b"", [self.finding(BundleCode.MISSING, listed.name, text)]
        fault = listed.fault(data)
        return data, [self.finding(BundleCode.ALTERED, listed.name, f"it {fault}")] if fault else []

    def _spec_findings(self, specs: Specs) -> Iterator[BundleFinding]:
        for name, made in self.manifest.specs.items():
            here = specs.digest(name) if name in specs.names() else ""
            if here != made:
                text = (
                    f"spec {name} has digest {here[:12] or 'none'} here, the bundle was made from {made[:12]}"
                )
                yield self.finding(BundleCode.STALE_SPEC, "", text)

    def _planned(self, specs: Specs, id: str) -> list[BundleFinding]:
        try:
            plan = plan_of(specs, self.builds[id].of)
        except Unsupported as refused:
            text = f"it has no plan any more: {refused.reasons[0].text}"
            return [self.finding(BundleCode.STALE_PLAN, id, text)]
        return self._plan_findings(plan)

    def _plan_findings(self, plan: KernelPlan) -> list[BundleFinding]:
        build = self.builds[plan.key.id]
        data, findings = self._verified(build.abi)
        if findings:
            return findings
        difference = abi_difference(abi_of(data), plan.abi)
        if not difference and build.host != host_digest(plan):
            difference = "its memory layout, tags or grid are not the plan's"
        return [self.finding(BundleCode.STALE_PLAN, build.id, difference)] if difference else []


def _root(path: Path) -> Traversable:
    """Where the files of a bundle lie: the folder, or the one folder of a wheel that has a manifest."""
    if path.is_dir():
        return path
    if not path.is_file():
        raise BundleError([BundleFinding(BundleCode.NOT_FOUND, str(path), "nothing lies there", ANY_COMMAND)])
    try:
        archive = zipfile.Path(path)
        folders = [f for f in archive.iterdir() if f.is_dir() and f.joinpath(NAME).is_file()]
    except _UNREADABLE as error:
        text = f"it is no bundle wheel, or a truncated one ({error})"
        raise BundleError([BundleFinding(BundleCode.ALTERED, str(path), text, ANY_COMMAND)]) from None
    if len(folders) != 1:
        text = f"{len(folders)} folders of this file hold a {NAME}, one must"
        raise BundleError([BundleFinding(BundleCode.MANIFEST, str(path), text, ANY_COMMAND)])
    return folders[0]


def _read(root: Traversable, name: str) -> bytes | None:
    """A file below `root`; None if it is missing or unreadable (a wheel's entry with a wrong checksum)."""
    try:
        return root.joinpath(name).read_bytes()
    except _UNREADABLE:
        return None
