# ruff: noqa: E501
"""LLVM IR that makes LLVM emit most of what compilers emit for gfx942 and gfx950: one small function a case.

Functions take registers (``inreg`` ones are scalar), so that one IR instruction becomes one or two of the machine.
"""

from __future__ import annotations

import itertools
import re

# fmt: off
GLOBAL, LDS, CONSTANT = "ptr addrspace(1)", "ptr addrspace(3)", "ptr addrspace(4)"


class Module:
    """Collects functions and the declarations that they need."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.declarations: set[str] = set()

    def function(self, ret: str, args: list[str], body: str) -> None:
        number = len(self.functions)
        listed = ", ".join(f"{arg} %{chr(97 + i)}" for i, arg in enumerate(args))
        self.functions.append(f"define {ret} @f{number}({listed}) #0 {{\n{body}\n}}\n")

    def call(self, ret: str, name: str, args: list[str], after: str = "") -> None:
        """A call with registers for types and constants where an argument is ``type value``."""
        types = [arg.rpartition(" ")[0] if _is_constant(arg) else arg.removesuffix(" inreg") for arg in args]
        self.declarations.add(f"declare {ret} @{name}({', '.join(types)})")
        passed = [arg for arg in args if not _is_constant(arg)]
        names = iter("abcdefghijkl")
        actual = ", ".join(arg if _is_constant(arg) else f"{arg} %{next(names)}" for arg in args)
        result = "" if ret == "void" else "%r = "
        body = f"{result}call {ret} @{name}({actual})\n{after}ret {ret}{'' if ret == 'void' else ' %r'}"
        self.function(ret, passed, body)
        if ret != "void" and not after:
            self.function(ret, [f"{arg.removesuffix(' inreg')} inreg" for arg in passed], body)

    def op(self, ret: str, args: list[str], text: str) -> None:
        """One IR instruction on registers, then with the first, the last, then all arguments uniform."""
        for uniform in ([], [0], [len(args) - 1], list(range(len(args)))):
            marked = [f"{arg} inreg" if i in uniform else arg for i, arg in enumerate(args)]
            self.function(ret, marked, f"%r = {text}\nret {ret} %r")

    @property
    def source(self) -> str:
        head = 'target triple = "amdgcn-amd-amdhsa"\n'
        tail = '\nattributes #0 = { nounwind "amdgpu-unsafe-fp-atomics"="true" }\n'
        return head + "".join(self.functions) + "\n".join(sorted(self.declarations)) + tail


def _is_constant(arg: str) -> bool:
    return bool(re.search(r"(?<!\w)(i\d+|float|half|bfloat) (-?[\d.]+|true|false)$|metadata", arg))


def integers() -> Module:
    m = Module()
    for t, op in itertools.product(("i16", "i32", "i64", "<2 x i16>"), ("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr")):
        m.op(t, [t, t], f"{op} {t} %a, %b")
    for t, name in itertools.product(("i16", "i32", "i64", "<2 x i16>"), ("smin", "smax", "umin", "umax")):
        m.call(t, f"llvm.{name}.{t if t[0] == 'i' else 'v2i16'}", [t, t])
    for t in ("i32", "i64"):
        for name in ("ctpop", "bitreverse"):
            m.call(t, f"llvm.{name}.{t}", [t])
        for name in ("ctlz", "cttz", "abs"):
            m.call(t, f"llvm.{name}.{t}", [t, "i1 false"])
    for op in ("sdiv", "urem"):
        m.op("i32", ["i32", "i32"], f"{op} i32 %a, %b")
    for name in ("fshl", "fshr"):
        m.call("i32", f"llvm.{name}.i32", ["i32", "i32", "i32"])
    for name in ("perm", "ubfe", "sbfe", "alignbyte"):
        m.call("i32", f"llvm.amdgcn.{name}" + (".i32" if "bfe" in name else ""), ["i32", "i32", "i32"])
    for name in ("sad.u8", "sad.hi.u8", "sad.u16"):
        m.call("i32", f"llvm.amdgcn.{name}", ["i32"] * 3)
    m.function("i16", ["i16"] * 3, "%t = mul i16 %a, %b\n%r = add i16 %t, %c\nret i16 %r")
    for name in ("sadd.sat", "ssub.sat", "uadd.sat", "usub.sat"):
        for t in ("i32", "i16"):
            m.call(t, f"llvm.{name}.{t}", [t, t])
    for name in ("mul.i24", "mul.u24", "mulhi.i24", "mulhi.u24"):
        m.call("i32", f"llvm.amdgcn.{name}" + (".i32" if name[3] != "h" else ""), ["i32", "i32"])
    _fused_integers(m)
    _compares(m)
    return m


def _fused_integers(m: Module) -> None:
    pairs = {
        "add3": "%t = add i32 %a, %b\n%r = add i32 %t, %c",
        "lshl_add": "%s = and i32 %b, 31\n%t = shl i32 %a, %s\n%r = add i32 %t, %c",
        "add_lshl": "%s = and i32 %c, 31\n%t = add i32 %a, %b\n%r = shl i32 %t, %s",
        "lshl_or": "%s = and i32 %b, 31\n%t = shl i32 %a, %s\n%r = or i32 %t, %c",
        "and_or": "%t = and i32 %a, %b\n%r = or i32 %t, %c",
        "or3": "%t = or i32 %a, %b\n%r = or i32 %t, %c",
        "xad": "%t = xor i32 %a, %b\n%r = add i32 %t, %c",
        "bfi": "%n = xor i32 %a, -1\n%x = and i32 %a, %b\n%y = and i32 %n, %c\n%r = or i32 %x, %y",
        "xnor": "%t = xor i32 %a, %b\n%r = xor i32 %t, -1",
        "literal": "%t = mul i32 %a, 305419896\n%r = xor i32 %t, 2023406814",
        "bytes": "%x = lshr i32 %a, 8\n%y = and i32 %x, 255\n%z = and i32 %b, 65535\n%r = add i32 %y, %z",
        "shift_sdwa": "%x = lshr i32 %a, 16\n%y = and i32 %b, 255\n%r = shl i32 %x, %y",
        "med3": "%x = icmp slt i32 %a, %b\n%y = select i1 %x, i32 %a, i32 %b\n%z = icmp sgt i32 %y, %c\n%r = select i1 %z, i32 %y, i32 %c",
    }
    for body in pairs.values():
        m.function("i32", ["i32"] * 3, f"{body}\nret i32 %r")
        m.function("i32", ["i32 inreg"] * 3, f"{body}\nret i32 %r")
    _nested_extremes(m)
    _uniform(m)
    for ext in ("sext", "zext"):
        m.function("i64", ["i32", "i32", "i64"], f"%x = {ext} i32 %a to i64\n%y = {ext} i32 %b to i64\n%t = mul i64 %x, %y\n%r = add i64 %t, %c\nret i64 %r")
        m.function("i32", ["i32", "i32"], f"%x = {ext} i32 %a to i64\n%y = {ext} i32 %b to i64\n%t = mul i64 %x, %y\n%h = lshr i64 %t, 32\n%r = trunc i64 %h to i32\nret i32 %r")
    m.function("i64", ["i64", "i64"], "%t = shl i64 %a, 3\n%r = add i64 %t, %b\nret i64 %r")
    for n in (1, 2, 3, 4):
        m.function("i32", ["i32 inreg", "i32 inreg"], f"%t = shl i32 %a, {n}\n%r = add i32 %t, %b\nret i32 %r")


def _nested_extremes(m: Module) -> None:
    for t, suffix in (("i32", "i32"), ("i16", "i16"), ("float", "f32"), ("half", "f16")):
        names = ("minnum", "maxnum") if suffix[0] == "f" else ("smin", "smax", "umin", "umax")
        for name in names:
            m.declarations.add(f"declare {t} @llvm.{name}.{suffix}({t}, {t})")
            m.function(t, [t] * 3, f"%x = call {t} @llvm.{name}.{suffix}({t} %a, {t} %b)\n%r = call {t} @llvm.{name}.{suffix}({t} %x, {t} %c)\nret {t} %r")
        for low, high in zip(names[::2], names[1::2], strict=True):
            first, second = ("-2.0", "4.0") if suffix[0] == "f" else ("3", "60")
            m.function(t, [t], f"%x = call {t} @llvm.{high}.{suffix}({t} %a, {t} {first})\n%r = call {t} @llvm.{low}.{suffix}({t} %x, {t} {second})\nret {t} %r")


def _uniform(m: Module) -> None:
    for t in ("i32", "i64"):
        for body in ("%n = xor {t} %b, -1\n%r = and {t} %a, %n", "%n = xor {t} %b, -1\n%r = or {t} %a, %n", "%n = and {t} %a, %b\n%r = xor {t} %n, -1",
                     "%n = or {t} %a, %b\n%r = xor {t} %n, -1", "%n = xor {t} %a, %b\n%r = xor {t} %n, -1", "%r = xor {t} %a, -1",
                     "%n = shl {t} 1, %a\n%r = or {t} %b, %n", "%r = add {t} %a, 4000", "%r = mul {t} %a, 4000",
                     "%n = lshr {t} %a, 5\n%r = and {t} %n, 1023", "%n = shl {t} %a, 7\n%r = ashr {t} %n, 12"):
            m.function(t, [f"{t} inreg"] * 2, body.replace("{t}", t) + f"\nret {t} %r")
    for body in ("%x = and i32 %a, 65535\n%y = shl i32 %b, 16\n%r = or i32 %x, %y", "%x = and i32 %a, 65535\n%y = and i32 %b, -65536\n%r = or i32 %x, %y",
                 "%x = lshr i32 %a, 16\n%y = and i32 %b, -65536\n%r = or i32 %x, %y"):
        m.function("i32", ["i32 inreg"] * 2, f"{body}\nret i32 %r")
    for name in ("wqm.i64", "wqm.i32"):
        t = name[4:]
        m.call(t, f"llvm.amdgcn.s.{name}", [t])
        m.call(t, f"llvm.amdgcn.s.{name.replace('wqm', 'quadmask')}", [t])
    m.function("i32", ["i32", "i32", "i32"], "%x = call i32 @llvm.amdgcn.mul.i24.i32(i32 %a, i32 %b)\n%r = add i32 %x, %c\nret i32 %r")
    m.function("i32", ["i32", "i32", "i32"], "%x = call i32 @llvm.amdgcn.mul.u24.i32(i32 %a, i32 %b)\n%r = add i32 %x, %c\nret i32 %r")


def _compares(m: Module) -> None:
    integer = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
    floating = ("oeq", "one", "olt", "ole", "ogt", "oge", "ord", "uno", "ueq", "une", "ult", "ule", "ugt", "uge")
    for t, conditions, op in (("i16", integer, "icmp"), ("i32", integer, "icmp"), ("i64", integer, "icmp"),
                              ("half", floating, "fcmp"), ("float", floating, "fcmp"), ("double", floating, "fcmp")):
        for condition in conditions:
            m.function("i32", [t, t, "i32", "i32"], f"%x = {op} {condition} {t} %a, %b\n%r = select i1 %x, i32 %c, i32 %d\nret i32 %r")
        for condition in conditions if op == "icmp" and t != "i16" else ():
            m.function("i32", [f"{t} inreg", f"{t} inreg", "i32 inreg", "i32 inreg"],
                       f"%x = {op} {condition} {t} %a, %b\n%r = select i1 %x, i32 %c, i32 %d\nret i32 %r")
            m.function("i32", ["i32 inreg", "i32 inreg"], f"%y = xor i32 %a, 1\n%x = icmp {condition} i32 %y, 1234\n%r = select i1 %x, i32 %b, i32 7\nret i32 %r")
    m.function("float", ["float", "float", "i1 inreg"], "%n = fneg float %a\n%r = select i1 %c, float %n, float %b\nret float %r")
    m.function("i32", ["float"], "%x = call i1 @llvm.is.fpclass.f32(float %a, i32 3)\n%r = zext i1 %x to i32\nret i32 %r")
    m.declarations.add("declare i1 @llvm.is.fpclass.f32(float, i32)")


def floats() -> Module:
    m = Module()
    for t, op in itertools.product(("half", "float", "double", "<2 x half>", "<2 x float>"), ("fadd", "fsub", "fmul")):
        m.op(t, [t, t], f"{op} {t} %a, %b")
    suffix = {"half": "f16", "float": "f32", "double": "f64"}
    for t, s in suffix.items():
        for name in ("rcp", "rsq", "fract", "frexp.mant") + (("sin", "cos", "log", "exp2") if t != "double" else ()):
            m.call(t, f"llvm.amdgcn.{name}.{s}", [t])
        for name in ("floor", "ceil", "trunc", "rint", "canonicalize"):
            m.call(t, f"llvm.{name}.{s}", [t])
        m.call(t, f"llvm.amdgcn.sqrt.{s}", [t])
        m.call(t, f"llvm.fma.{s}", [t, t, t])
        for name in ("minnum", "maxnum", "minimum", "maximum"):
            m.call(t, f"llvm.{name}.{s}", [t, t])
    for name in ("fmed3", "div.fixup"):
        m.call("float", f"llvm.amdgcn.{name}.f32", ["float"] * 3)
    m.call("float", "llvm.amdgcn.fmul.legacy", ["float", "float"])
    m.call("float", "llvm.ldexp.f32.i32", ["float", "i32"])
    m.call("double", "llvm.ldexp.f64.i32", ["double", "i32"])
    m.call("i32", "llvm.amdgcn.frexp.exp.i32.f32", ["float"])
    m.op("float", ["float", "float"], "fdiv float %a, %b")
    m.op("double", ["double", "double"], "fdiv double %a, %b")
    m.op("half", ["half", "half"], "fdiv half %a, %b")
    m.call("<2 x float>", "llvm.fma.v2f32", ["<2 x float>"] * 3)
    m.call("<2 x half>", "llvm.fma.v2f16", ["<2 x half>"] * 3)
    for name in ("minnum", "maxnum"):
        m.call("<2 x half>", f"llvm.{name}.v2f16", ["<2 x half>"] * 2)
    m.declarations.add("declare float @llvm.fabs.f32(float)")
    m.function("float", ["float", "float", "float"], "%n = fneg float %a\n%x = call float @llvm.fabs.f32(float %b)\n%r = call float @llvm.fma.f32(float %n, float %x, float %c)\nret float %r")
    m.function("float", ["float", "float"], "%t = fmul contract float %a, 0x400921FB60000000\n%r = fadd contract float %t, %b\nret float %r")
    m.function("float", ["float", "float"], "%t = fmul contract float %a, %b\n%r = fadd contract float %t, 0x400921FB60000000\nret float %r")
    m.function("float", ["half", "float", "half"], "%x = fpext half %a to float\n%y = fpext half %c to float\n%r = call float @llvm.fma.f32(float %x, float %b, float %y)\nret float %r")
    for constant in ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0x3FC45F3060000000"):
        m.function("float", ["float"], f"%r = fadd float %a, {constant}\nret float %r")
    for constant in ("-16", "-17", "64", "65", "0"):
        m.function("i32", ["i32"], f"%r = xor i32 %a, {constant}\nret i32 %r")
    for constant in ("1.0", "0.5", "-4.0", "3.0"):
        m.function("double", ["double"], f"%r = fadd double %a, {constant}\nret double %r")
        m.function("half", ["half"], f"%r = fadd half %a, {constant}\nret half %r")
    return m


def conversions(arch: str) -> Module:
    m = Module()
    for op, pairs in {
        "sitofp": [("i32", "float"), ("i32", "double"), ("i16", "half")], "uitofp": [("i32", "float"), ("i32", "double"), ("i16", "half")],
        "fptosi": [("float", "i32"), ("double", "i32"), ("half", "i16")], "fptoui": [("float", "i32"), ("double", "i32"), ("half", "i16")],
        "fpext": [("half", "float"), ("float", "double"), ("bfloat", "float")], "fptrunc": [("float", "half"), ("double", "float"), ("float", "bfloat")],
        "sext": [("i8", "i32"), ("i16", "i32"), ("i32", "i64")],
    }.items():
        for source, target in pairs:
            m.op(target, [source], f"{op} {source} %a to {target}")
    m.op("<2 x bfloat>", ["<2 x float>"], "fptrunc <2 x float> %a to <2 x bfloat>")
    for byte in range(4):
        m.function("float", ["i32"], f"%x = lshr i32 %a, {8 * byte}\n%y = and i32 %x, 255\n%r = uitofp i32 %y to float\nret float %r")
        for kind in ("fp8", "bf8"):
            m.call("float", f"llvm.amdgcn.cvt.f32.{kind}", ["i32", f"i32 {byte}"])
            m.call("i32", f"llvm.amdgcn.cvt.sr.{kind}.f32", ["float", "i32", "i32", f"i32 {byte}"])
    for kind, high in itertools.product(("fp8", "bf8"), ("true", "false")):
        m.call("<2 x float>", f"llvm.amdgcn.cvt.pk.f32.{kind}", ["i32", f"i1 {high}"])
        m.call("i32", f"llvm.amdgcn.cvt.pk.{kind}.f32", ["float", "float", "i32", f"i1 {high}"])
    m.call("<2 x half>", "llvm.amdgcn.cvt.pkrtz", ["float", "float"])
    for name in ("i16", "u16"):
        m.call("<2 x i16>", f"llvm.amdgcn.cvt.pk.{name}", ["i32", "i32"])
    if arch == "gfx950":
        _scaled_conversions(m)
    return m


def _scaled_conversions(m: Module) -> None:
    for kind, high in itertools.product(("fp8", "bf8"), ("true", "false")):
        for target, t in (("f32", "<2 x float>"), ("bf16", "<2 x bfloat>"), ("f16", "<2 x half>")):
            m.call(t, f"llvm.amdgcn.cvt.scalef32.pk.{target}.{kind}", ["i32", "float", f"i1 {high}"])
        m.call("<2 x i16>", f"llvm.amdgcn.cvt.scalef32.pk.{kind}.f32", ["<2 x i16>", "float", "float", "float", f"i1 {high}"])
        m.call("<2 x i16>", f"llvm.amdgcn.cvt.scalef32.pk.{kind}.bf16", ["<2 x i16>", "<2 x bfloat>", "float", f"i1 {high}"])
    for byte in range(4):
        m.call("<2 x float>", "llvm.amdgcn.cvt.scalef32.pk.f32.fp4", ["i32", "float", f"i32 {byte}"])
        m.call("<2 x bfloat>", "llvm.amdgcn.cvt.scalef32.pk.bf16.fp4", ["i32", "float", f"i32 {byte}"])
        m.call("i32", "llvm.amdgcn.cvt.scalef32.pk.fp4.f32", ["i32", "float", "float", "float", f"i32 {byte}"])
        m.call("i32", "llvm.amdgcn.cvt.scalef32.pk.fp4.bf16", ["i32", "<2 x bfloat>", "float", f"i32 {byte}"])
    m.call("<6 x i32>", "llvm.amdgcn.cvt.scalef32.2xpk16.fp6.f32", ["<16 x float>", "<16 x float>", "float"])
    m.call("<32 x float>", "llvm.amdgcn.cvt.scalef32.pk32.f32.fp6", ["<6 x i32>", "float"])
    m.call("i32", "llvm.amdgcn.prng.b32", ["i32"])
    m.call("float", "llvm.minimum.f32", ["float", "float"])


def lanes(arch: str) -> Module:
    m = Module()
    m.call("i32", "llvm.amdgcn.readlane.i32", ["i32", "i32"])
    m.call("i32", "llvm.amdgcn.readlane.i32", ["i32", "i32 7"])
    m.call("i32", "llvm.amdgcn.readfirstlane.i32", ["i32"])
    m.call("i32", "llvm.amdgcn.writelane.i32", ["i32", "i32", "i32"])
    m.call("i32", "llvm.amdgcn.mbcnt.lo", ["i32", "i32"])
    m.call("i32", "llvm.amdgcn.mbcnt.hi", ["i32", "i32"])
    m.call("i32", "llvm.amdgcn.ds.bpermute", ["i32", "i32"])
    m.call("i32", "llvm.amdgcn.ds.permute", ["i32", "i32"])
    for pattern in (0x401F, 0x041F, 0x80B1):
        m.call("i32", "llvm.amdgcn.ds.swizzle", ["i32", f"i32 {pattern}"])
    controls = (0xB1, 0x4E, 0x101, 0x10F, 0x111, 0x118, 0x121, 0x12F, 0x130, 0x134, 0x138, 0x13C, 0x140, 0x141, 0x142, 0x143, 0x150, 0x15F)
    for control in controls:
        m.call("i32", "llvm.amdgcn.update.dpp.i32", ["i32", "i32", f"i32 {control}", "i32 15", "i32 15", "i1 false"])
    m.call("i32", "llvm.amdgcn.update.dpp.i32", ["i32", "i32", "i32 276", "i32 5", "i32 10", "i1 true"])
    m.function("float", ["float", "float"], "%i = bitcast float %a to i32\n%d = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %i, i32 177, i32 15, i32 15, i1 true)\n%f = bitcast i32 %d to float\n%r = fsub float %f, %b\nret float %r")
    m.call("i64", "llvm.amdgcn.ballot.i64", ["i1"])
    if arch == "gfx950":
        for name in ("permlane16.swap", "permlane32.swap"):
            m.call("{ i32, i32 }", f"llvm.amdgcn.{name}", ["i32", "i32", "i1 false", "i1 false"])
    return m


def memory(arch: str) -> Module:
    m = Module()
    for space, t in itertools.product((GLOBAL, LDS, "ptr"), ("i8", "i16", "i32", "i64", "<3 x i32>", "<4 x i32>")):
        m.function(t, [space], f"%p = getelementptr i8, {space} %a, i32 1040\n%r = load {t}, {space} %p, align 16\nret {t} %r")
        m.function("void", [space, t], f"%p = getelementptr i8, {space} %a, i32 2064\nstore {t} %b, {space} %p, align 16\nret void")
        m.function(t, [f"{space} inreg", "i32"], f"%p = getelementptr i8, {space} %a, i32 %b\n%r = load {t}, {space} %p, align 16\nret {t} %r")
        m.function("void", [f"{space} inreg", "i32", t], f"%p = getelementptr i8, {space} %a, i32 %b\nstore {t} %c, {space} %p, align 16\nret void")
    for t in ("i32", "i64", "<3 x i32>", "<4 x i32>", "<8 x i32>", "<16 x i32>"):
        m.function(t, [f"{CONSTANT} inreg"], f"%p = getelementptr i8, {CONSTANT} %a, i32 4096\n%r = load {t}, {CONSTANT} %p, align 64\nret {t} %r")
        m.function(t, [f"{CONSTANT} inreg", "i32 inreg"], f"%o = zext i32 %b to i64\n%p = getelementptr i8, {CONSTANT} %a, i64 %o\n%r = load {t}, {CONSTANT} %p, align 64\nret {t} %r")
    for t in ("i8", "i16"):
        for space, ext in itertools.product((GLOBAL, LDS), ("sext", "zext")):
            m.function("i32", [space], f"%v = load {t}, {space} %a\n%r = {ext} {t} %v to i32\nret i32 %r")
            m.function("<2 x i16>", [space, "<2 x i16>"], f"%v = load {t}, {space} %a\n%w = {ext if t == 'i8' else 'bitcast'} {t} %v to i16\n%r = insertelement <2 x i16> %b, i16 %w, i32 1\nret <2 x i16> %r")
    for a, b in ((0, 4), (0, 12), (256, 1024)):
        for t, size in (("i32", 4), ("i64", 8)):
            first = f"%p = getelementptr i8, {LDS} %a, i32 {a * size // 4}\n%q = getelementptr i8, {LDS} %a, i32 {b * size // 4}\n"
            m.function(t, [LDS], f"{first}%x = load {t}, {LDS} %p, align {size}\n%y = load {t}, {LDS} %q, align {size}\n%r = add {t} %x, %y\nret {t} %r")
            m.function("void", [LDS, t, t], f"{first}store {t} %b, {LDS} %p, align {size}\nstore {t} %c, {LDS} %q, align {size}\nret void")
    m.function("i32", ["i32"], "%s = alloca [64 x i32], addrspace(5)\n%p = getelementptr i32, ptr addrspace(5) %s, i32 %a\nstore volatile i32 %a, ptr addrspace(5) %p\nstore volatile i32 7, ptr addrspace(5) %s\n%r = load volatile i32, ptr addrspace(5) %p\nret i32 %r")
    _atomics(m)
    _buffers(m, arch)
    return m


def _atomics(m: Module) -> None:
    ops = ("xchg", "add", "sub", "and", "or", "xor", "max", "min", "umax", "umin", "uinc_wrap", "udec_wrap")
    for space, t, op in itertools.product((GLOBAL, LDS, "ptr"), ("i32", "i64"), ops):
        never = ", !noalias.addrspace !1" if space == "ptr" else ""
        for scope in ('syncscope("agent") monotonic', "seq_cst") if op == "add" else ('syncscope("agent") monotonic',):
            m.function(t, [space, t], f"%r = atomicrmw {op} {space} %a, {t} %b {scope}{never}\nret {t} %r")
            m.function("void", [space, t], f"%r = atomicrmw {op} {space} %a, {t} %b {scope}{never}\nret void")
    for space, t in itertools.product((GLOBAL, LDS), ("float", "double", "<2 x half>", "<2 x bfloat>")):
        rmw = f'%r = atomicrmw fadd {space} %a, {t} %b syncscope("agent") monotonic, !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0'
        m.function(t, [space, t], f"{rmw}\nret {t} %r")
        m.function("void", [space, t], f"{rmw}\nret void")
    m.declarations |= {"!0 = !{}", "!1 = !{i32 5, i32 6}"}
    for space, t in itertools.product((GLOBAL, LDS, "ptr"), ("i32", "i64")):
        never = ", !noalias.addrspace !1" if space == "ptr" else ""
        m.function(t, [space, t, t], f"%x = cmpxchg {space} %a, {t} %b, {t} %c seq_cst seq_cst{never}\n%r = extractvalue {{ {t}, i1 }} %x, 0\nret {t} %r")
    for scope in ("workgroup", "agent", ""):
        for order in ("acquire", "release"):
            sync = f'syncscope("{scope}") ' if scope else ""
            m.function("void", [], f"fence {sync}{order}\nret void")
    for scope in ("agent", ""):
        sync = f'syncscope("{scope}") ' if scope else ""
        m.function("i32", [GLOBAL], f"%r = load atomic i32, {GLOBAL} %a {sync}acquire, align 4\nret i32 %r")
        m.function("void", [GLOBAL, "i32"], f"store atomic i32 %b, {GLOBAL} %a {sync}release, align 4\nret void")


def _buffers(m: Module, arch: str) -> None:
    rsrc, resource = "ptr addrspace(8) inreg", "ptr addrspace(8)"
    types = ("i8", "i16", "i32", "v2i32", "v3i32", "v4i32")
    for name, aux in itertools.product(types, (0, 1, 2, 16, 17, 19)):
        t = f"<{name[1]} x i32>" if name[0] == "v" else name
        load = f"llvm.amdgcn.raw.ptr.buffer.load.{name}"
        store = f"llvm.amdgcn.raw.ptr.buffer.store.{name}"
        indexed = f"llvm.amdgcn.struct.ptr.buffer.load.{name}"
        m.declarations |= {f"declare {t} @{load}({resource}, i32, i32, i32)", f"declare void @{store}({t}, {resource}, i32, i32, i32)",
                           f"declare {t} @{indexed}({resource}, i32, i32, i32, i32)"}
        m.function(t, [rsrc, "i32", "i32 inreg"], f"%o = add nuw i32 %b, 64\n%r = call {t} @{load}({resource} %a, i32 %o, i32 %c, i32 {aux})\nret {t} %r")
        m.function("void", [rsrc, "i32", t], f"call void @{store}({t} %c, {resource} %a, i32 %b, i32 0, i32 {aux})\nret void")
        m.function(t, [rsrc], f"%r = call {t} @{load}({resource} %a, i32 4095, i32 0, i32 {aux})\nret {t} %r")
        m.function(t, [rsrc, "i32", "i32"], f"%r = call {t} @{indexed}({resource} %a, i32 %b, i32 %c, i32 4, i32 {aux})\nret {t} %r")
    for op in ("swap", "add", "sub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec"):
        for t in ("i32", "i64"):
            name = f"llvm.amdgcn.raw.ptr.buffer.atomic.{op}.{t}"
            m.declarations.add(f"declare {t} @{name}({t}, {resource}, i32, i32, i32)")
            m.function(t, [rsrc, "i32", t], f"%r = call {t} @{name}({t} %c, {resource} %a, i32 %b, i32 0, i32 0)\nret {t} %r")
            m.function("void", [rsrc, "i32", t], f"%r = call {t} @{name}({t} %c, {resource} %a, i32 %b, i32 0, i32 0)\nret void")
    m.declarations.add(f"declare void @llvm.amdgcn.raw.ptr.buffer.load.lds({resource}, {LDS}, i32, i32, i32, i32, i32)")
    m.declarations.add(f"declare void @llvm.amdgcn.global.load.lds({GLOBAL}, {LDS}, i32, i32, i32)")
    for size in (1, 2, 4) + ((12, 16) if arch == "gfx950" else ()):
        m.function("void", [rsrc, f"{LDS} inreg", "i32"], f"call void @llvm.amdgcn.raw.ptr.buffer.load.lds({resource} %a, {LDS} %b, i32 {size}, i32 %c, i32 0, i32 16, i32 0)\nret void")
        m.function("void", [GLOBAL, f"{LDS} inreg"], f"call void @llvm.amdgcn.global.load.lds({GLOBAL} %a, {LDS} %b, i32 {size}, i32 8, i32 0)\nret void")
    for name in ("i32", "v2i32", "v4i32", "v8i32", "v16i32"):
        t = f"<{name[1:-3]} x i32>" if name[0] == "v" else name
        m.call(t, f"llvm.amdgcn.s.buffer.load.{name}", ["<4 x i32> inreg", "i32 inreg", "i32 0"])
    if arch == "gfx950":
        for name, t in (("b4.v2i32", "<2 x i32>"), ("b8.v2i32", "<2 x i32>"), ("b16.v4i16", "<4 x i16>")):
            m.call(t, f"llvm.amdgcn.ds.read.tr{name.split('.')[0][1:]}.b64.{name.split('.')[1]}", [LDS])


def control() -> Module:
    m = Module()
    m.call("i64", "llvm.readcyclecounter", [])
    m.call("i64", "llvm.amdgcn.s.memrealtime", [])
    for name, args in {"s.barrier": [], "s.sleep": ["i32 3"], "s.setprio": ["i16 2"], "s.waitcnt": ["i32 0"], "s.dcache.inv": [], "s.dcache.wb": [],
                       "s.sethalt": ["i32 0"], "s.ttracedata": ["i32 inreg"], "s.incperflevel": ["i32 1"], "s.sendmsg": ["i32 1", "i32 5"]}.items():
        if name not in ("s.incperflevel", "s.sendmsg"):
            m.call("void", f"llvm.amdgcn.{name}", args)
    m.call("i32", "llvm.amdgcn.s.getreg", ["i32 14337"])
    m.call("void", "llvm.amdgcn.s.setreg", ["i32 14337", "i32 inreg"])
    m.call("void", "llvm.amdgcn.s.setreg", ["i32 14337", "i32 3"])
    m.call("i64", "llvm.amdgcn.s.getpc", [])
    m.function("void", ["i32 inreg", GLOBAL], "%x = icmp eq i32 %a, 0\nbr i1 %x, label %y, label %z\ny:\nstore volatile i32 1, ptr addrspace(1) %b\nbr label %w\nz:\nstore volatile i32 2, ptr addrspace(1) %b\nbr label %w\nw:\nret void")
    m.declarations.add("declare void @llvm.trap()")
    m.function("void", ["i32", GLOBAL], "call void @llvm.trap()\nunreachable")
    return m


def matrix(arch: str) -> Module:
    m = Module()
    acc4, acc16, acc32 = "<4 x float>", "<16 x float>", "<32 x float>"
    shapes = [("f32.16x16x4f32", "float", acc4), ("f32.32x32x2f32", "float", acc16), ("f32.32x32x1f32", "float", acc32), ("f32.4x4x1f32", "float", acc4),
              ("f32.16x16x16f16", "<4 x half>", acc4), ("f32.32x32x8f16", "<4 x half>", acc16), ("f32.16x16x16bf16.1k", "<4 x i16>", acc4),
              ("f32.32x32x8bf16.1k", "<4 x i16>", acc16), ("f32.4x4x4f16", "<4 x half>", acc4), ("i32.16x16x32.i8", "i64", "<4 x i32>"),
              ("i32.32x32x16.i8", "i64", "<16 x i32>")]
    for a, b, (shape, acc) in itertools.product(("fp8", "bf8"), ("fp8", "bf8"), (("16x16x32", acc4), ("32x32x16", acc16))):
        shapes.append((f"f32.{shape}.{a}.{b}", "i64", acc))
    if arch == "gfx942":
        shapes += [("f32.16x16x8.xf32", "<2 x float>", acc4), ("f32.32x32x4.xf32", "<2 x float>", acc16)]
    else:
        shapes += [("f32.16x16x32.f16", "<8 x half>", acc4), ("f32.16x16x32.bf16", "<8 x bfloat>", acc4), ("f32.32x32x16.bf16", "<8 x bfloat>", acc16),
                   ("i32.16x16x64.i8", "<4 x i32>", "<4 x i32>")]
    for name, t, acc in shapes:
        for control in ("i32 0", "i32 1") if "x1f32" in name else ("i32 0",):
            m.call(acc, f"llvm.amdgcn.mfma.{name}", [t, t, acc, control, control, "i32 0"])
        m.function(acc, [t, t], f"%r = call {acc} @llvm.amdgcn.mfma.{name}({t} %a, {t} %b, {acc} zeroinitializer, i32 0, i32 0, i32 0)\nret {acc} %r")
    m.call("<4 x double>", "llvm.amdgcn.mfma.f64.16x16x4f64", ["double", "double", "<4 x double>", "i32 0", "i32 0", "i32 0"])
    for a, b, name in (("<4 x half>", "<8 x half>", "f32.16x16x32.f16"), ("<2 x i32>", "<4 x i32>", "f32.16x16x64.fp8.fp8")):
        m.call(acc4, f"llvm.amdgcn.smfmac.{name}", [a, b, acc4, "i32", "i32 0", "i32 0"])
    if arch == "gfx950":
        _scaled_matrix(m)
    _dots(m)
    return m


def _scaled_matrix(m: Module) -> None:
    widths = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}
    for (a, b), (shape, acc) in itertools.product(((0, 0), (1, 0), (2, 3), (4, 4), (0, 4), (4, 0)), (("16x16x128", "<4 x float>"), ("32x32x64", "<16 x float>"))):
        ta, tb = f"<{widths[a]} x i32>", f"<{widths[b]} x i32>"
        name = f"llvm.amdgcn.mfma.scale.f32.{shape}.f8f6f4.v{widths[a]}i32.v{widths[b]}i32"
        for sel in (0, 1, 2, 3):
            m.call(acc, name, [ta, tb, acc, f"i32 {a}", f"i32 {b}", f"i32 {sel}", "i32", f"i32 {3 - sel}", "i32"])
        m.call(acc, name, [ta, tb, acc, f"i32 {a}", f"i32 {b}", "i32 0", "i32 0", "i32 0", "i32 0"])


def _dots(m: Module) -> None:
    for name, t, acc in (("fdot2", "<2 x half>", "float"), ("sdot2", "<2 x i16>", "i32"), ("udot2", "<2 x i16>", "i32"), ("sdot4", "i32", "i32"),
                         ("udot4", "i32", "i32"), ("sdot8", "i32", "i32"), ("udot8", "i32", "i32")):
        m.call(acc, f"llvm.amdgcn.{name}", [t, t, acc, "i1 false"])


def modules(arch: str) -> dict[str, Module]:
    return {"integers": integers(), "floats": floats(), "conversions": conversions(arch), "lanes": lanes(arch),
            "memory": memory(arch), "control": control(), "matrix": matrix(arch)}


# Two kernels in one object: one with LDS, a barrier and a fixed workgroup size, one without.
SAMPLE = """target triple = "amdgcn-amd-amdhsa"
@buffer = internal addrspace(3) global [64 x float] poison, align 4
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()

define amdgpu_kernel void @reverse(ptr addrspace(1) %out, ptr addrspace(1) %in, i32 %n) #0 !reqd_work_group_size !0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr float, ptr addrspace(1) %in, i32 %i
  %x = load float, ptr addrspace(1) %from
  %here = getelementptr [64 x float], ptr addrspace(3) @buffer, i32 0, i32 %i
  store float %x, ptr addrspace(3) %here
  call void @llvm.amdgcn.s.barrier()
  %m = sub i32 63, %i
  %there = getelementptr [64 x float], ptr addrspace(3) @buffer, i32 0, i32 %m
  %y = load float, ptr addrspace(3) %there
  %to = getelementptr float, ptr addrspace(1) %out, i32 %i
  store float %y, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @scale(ptr addrspace(1) %data, float %factor) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr float, ptr addrspace(1) %data, i32 %i
  %x = load float, ptr addrspace(1) %at
  %y = fmul float %x, %factor
  store float %y, ptr addrspace(1) %at
  ret void
}

attributes #0 = { nounwind "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-implicitarg-ptr" "amdgpu-no-hostcall-ptr" }
!0 = !{i32 64, i32 1, i32 1}
"""
