// Python's view of the decoder: listings, and the fields of one instruction for tests.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "decode.hpp"
#include "disasm.hpp"
#include "optable.hpp"

namespace nb = nanobind;

namespace flymono {
namespace {

std::vector<std::uint8_t> copy(const nb::bytes& bytes) {
  const auto* first = static_cast<const std::uint8_t*>(bytes.data());
  return {first, first + bytes.size()};
}

Arch arch_or_error(const std::string& name) {
  if (const auto arch = arch_named(name)) return *arch;
  throw nb::value_error(("the decoder knows no arch \"" + name + "\"").c_str());
}

// [(pc, size, mnemonic with suffix, text, error or None)]
nb::list listing(const std::string& arch, const nb::bytes& text) {
  const Listing decoded = decode_all(arch_or_error(arch), copy(text));
  nb::list out;
  auto error = decoded.errors.begin();
  for (const Inst& inst : decoded.insts) {
    nb::object why = nb::none();
    if (inst.op == Op::unknown) why = nb::cast(error++->what);
    out.append(nb::make_tuple(inst.pc, inst.size, full_mnemonic(inst), disassemble(inst), why));
  }
  return out;
}

nb::tuple fields(const Operand& o) {
  return nb::make_tuple(static_cast<int>(o.kind), o.dwords, o.index, o.value, o.hi, o.literal, o.neg, o.abs, o.sext, o.sel);
}

nb::list operands(const Inst& inst) {
  nb::list out;
  for (const Operand* operand : {&inst.dst, &inst.dst2, &inst.src[0], &inst.src[1], &inst.src[2], &inst.src[3],
                                 &inst.scale[0], &inst.scale[1]})
    out.append(fields(*operand));
  return out;
}

// Every field of the first instruction, so that two decodings can be compared; None if unknown.
nb::object first(const std::string& arch, const nb::bytes& text) {
  const auto bytes = copy(text);
  Inst inst;
  std::string why;
  if (!decode(arch_or_error(arch), bytes.data(), bytes.size(), 0, inst, why)) return nb::none();
  nb::dict out;
  out["op"] = std::string(mnemonic(inst.op));
  out["encoding"] = static_cast<int>(inst.enc);
  out["size"] = inst.size;
  out["operands"] = operands(inst);
  out["imm"] = nb::make_tuple(inst.imm, inst.target, inst.offset0, inst.offset1);
  out["packed"] = nb::make_tuple(inst.op_sel, inst.op_sel_hi, inst.neg_lo, inst.neg_hi);
  out["output"] = nb::make_tuple(inst.clamp, inst.omod, inst.bitop3);
  out["mfma"] = nb::make_tuple(inst.cbsz, inst.abid, inst.blgp);
  out["memory"] = nb::make_tuple(inst.sc0, inst.sc1, inst.nt, inst.offen, inst.idxen, inst.lds);
  out["dpp"] = nb::make_tuple(inst.dpp.on, inst.dpp.ctrl, inst.dpp.row_mask, inst.dpp.bank_mask, inst.dpp.bound_ctrl);
  out["sdwa"] = nb::make_tuple(inst.sdwa.on, inst.sdwa.dst_sel, inst.sdwa.dst_unused);
  return out;
}

// Mnemonics without suffix that the decoder knows on an arch.
nb::list known(const std::string& arch) {
  const Arch on = arch_or_error(arch);
  nb::list out;
  for (int op = 0; op < static_cast<int>(Op::count_); ++op)
    if (row_of(static_cast<Op>(op)).on(on)) out.append(std::string(mnemonic(static_cast<Op>(op))));
  return out;
}

}  // namespace

void bind_decode(nb::module_& module) {
  module.def("decode_listing", &listing, nb::arg("arch"), nb::arg("text"),
             "[(pc, size, mnemonic, text, error or None)] of a code section");
  module.def("decode_first", &first, nb::arg("arch"), nb::arg("text"),
             "every field of the first instruction, or None if it is unknown");
  module.def("decode_known", &known, nb::arg("arch"), "mnemonics that the decoder knows on an arch");
}

}  // namespace flymono
