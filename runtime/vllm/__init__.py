"""vLLM's decode layers on our kernels: a plugin that takes the docking class's place.

Read in this order: `plugin` (what vLLM calls), `fit` (whether this vLLM is the one this was written for),
`host` (what a layer and its server say), `server` (plan, runners and counters of a process), `layer` (the
docking class),
`loading` (weights at load and reload), `step` and `selection` (a step's inputs), `watch` (faults and the
state file).
"""
