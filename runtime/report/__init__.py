"""Pages for a browser, one file each that opens offline: of a plan here, of a run in `runtime/run`."""
