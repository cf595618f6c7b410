"""Pages for a browser: one file each that opens offline, of a plan (`layer`) or, in `runtime/run`, of a run."""
