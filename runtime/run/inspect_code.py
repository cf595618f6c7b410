"""Printing what a code object holds and which of it the emulator implements."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from flymono.emulator import CodeObject, implemented_ops


def list_opcodes() -> None:
    """One implemented mnemonic a line, sorted."""
    for name in sorted(implemented_ops()):
        print(name)


def show(path: Path, opcodes: bool, disassemble: bool) -> bool:
    """Print the kernels of `path`; False if it contains an opcode that is not implemented."""
    code = CodeObject(path)
    console = Console()
    for name, kernel in code.kernels.items():
        console.print(
            f"{name}: {code.arch}, {kernel.vgprs} VGPR, {kernel.lds_bytes} B LDS, "
            f"{kernel.kernarg_bytes} B arguments"
        )
    if disassemble:
        for pc, _, text in code.disassemble():
            print(f"{pc:6x}  {text}")
    known = set(implemented_ops())
    counts = code.opcodes()
    missing = sorted(set(counts) - known)
    if opcodes:
        table = Table("opcode", "count", "implemented")
        for name, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            table.add_row(name, f"{n:,}", "yes" if name in known else "[red]no[/red]")
        console.print(table)
    if missing:
        console.print(f"[red]not implemented: {', '.join(missing)}[/red]")
    return not missing
