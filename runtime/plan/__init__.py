"""Pure-integer planning: every number of a kernel, computed from specs, each with its reason."""
