"""Codes of what can be wrong with a bundle."""

from __future__ import annotations

from enum import StrEnum


class BundleCode(StrEnum):
    """Why a bundle is refused; `about` explains each code in one sentence."""

    NOT_FOUND = "BUNDLE_NOT_FOUND"
    SEVERAL = "BUNDLE_SEVERAL"
    OTHER = "BUNDLE_OTHER"
    MANIFEST = "BUNDLE_MANIFEST"
    FORMAT = "BUNDLE_FORMAT"
    MISSING = "BUNDLE_MISSING"
    ALTERED = "BUNDLE_ALTERED"
    NO_BUILD = "BUNDLE_NO_BUILD"
    STALE_SPEC = "BUNDLE_STALE_SPEC"
    STALE_PLAN = "BUNDLE_STALE_PLAN"
    PLACE = "BUNDLE_PLACE"
    NAME = "BUNDLE_NAME"
    EMPTY = "BUNDLE_EMPTY"

    @property
    def about(self) -> str:
        """One sentence for the docs page."""
        return ABOUT[self]


ABOUT = {
    BundleCode.NOT_FOUND: "No bundle was named, none is installed for arch and TP size, or none is there.",
    BundleCode.SEVERAL: "Several installed packages say that they are the bundle of this arch and TP size.",
    BundleCode.OTHER: "The bundle is for another arch or TP size.",
    BundleCode.MANIFEST: "The manifest is missing, truncated or altered: its seal does not fit its content.",
    BundleCode.FORMAT: "The bundle was written by a flymono with another bundle format.",
    BundleCode.MISSING: "A file that the manifest lists is not there.",
    BundleCode.ALTERED: "A file is not what the manifest lists: its length or its digest differs.",
    BundleCode.NO_BUILD: "The bundle was made without this build.",
    BundleCode.STALE_SPEC: "The bundle was made from other specs than those loaded here.",
    BundleCode.STALE_PLAN: "A build's launch arguments or memory layout are not those of the plan made here.",
    BundleCode.PLACE: "What lies at the place of a new bundle is no bundle, and is left alone.",
    BundleCode.NAME: "The file name of a bundle wheel is not the one that pip installs it by.",
    BundleCode.EMPTY: "No build of the shipped matrix is left for the bundle.",
}
