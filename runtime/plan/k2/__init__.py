"""K2: the attention half of a layer after K1, then the FFN half, in one launch.

`lds`, `stages`, `sites`, `regions`, `abi` and `cost` are the attention half's; the FFN half's are in `ffn`.
`launch` puts the plan together.
"""
