"""The FFN half: a part of K2 and, behind a push stage, a launch of its own (ffn_structure.md).

Read `shape` (counts and bases), then `stages`, `sites`, `regions`, `lds`, `abi`, `cost`, and `launch`, which
puts the plan of the FFN launch together. K2's plan takes the same parts.
"""
