#include "disasm.hpp"

#include <utility>

#include "disasm_operand.hpp"

namespace flymono {
namespace {

class Text {
 public:
  explicit Text(const Inst& inst) : text_(full_mnemonic(inst)) {}
  void operand(const std::string& operand) {
    text_ += (first_ ? " " : ", ") + operand;
    first_ = false;
  }
  void word(const std::string& word) { text_ += " " + word; }
  void flag(bool on, const char* name) {
    if (on) word(name);
  }
  void number(const char* name, std::int64_t value, bool print) {
    if (print) word(std::string(name) + ":" + std::to_string(value));
  }
  // "op_sel:[0,1]" of the low `count` bits.
  void bits(const char* name, unsigned value, unsigned count) {
    std::string list;
    for (unsigned i = 0; i < count; ++i) {
      if (i) list += ',';
      list += value >> i & 1 ? '1' : '0';
    }
    word(std::string(name) + ":[" + list + "]");
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  bool first_ = true;
};

// --- scalar

void scalar_text(const Inst& inst, const Row& row, Text& text) {
  if (inst.dst.kind != Kind::none) text.operand(operand_text(inst.dst, row.dst.type));
  const bool imm_first = row.imm == Imm::unsigned16 && inst.src[0].kind != Kind::none && row.dst.role == Role::none;
  if (imm_first) text.operand(immediate_text(inst, row.imm));
  for (unsigned i = 0; i < row.sources; ++i)
    if (row.src[i].role != Role::tied) text.operand(operand_text(inst.src[i], row.src[i].type));
  if (row.imm != Imm::none && !imm_first) text.operand(immediate_text(inst, row.imm));
}

// --- vector

const char* select_name(unsigned sel) {
  static constexpr const char* names[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"};
  return names[sel < 7 ? sel : 6];
}

// FP8 conversions to f32: their SDWA form selects a source byte and nothing of the destination.
bool writes_whole(Op op) {
  return op == Op::v_cvt_f32_fp8 || op == Op::v_cvt_f32_bf8 || op == Op::v_cvt_pk_f32_fp8 || op == Op::v_cvt_pk_f32_bf8;
}

void sdwa_text(const Inst& inst, const Row& row, Text& text) {
  static constexpr const char* unused[] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "?"};
  if (inst.enc != Enc::vopc && !writes_whole(inst.op)) {
    text.word(std::string("dst_sel:") + select_name(inst.sdwa.dst_sel));
    text.word(std::string("dst_unused:") + unused[inst.sdwa.dst_unused & 3]);
  }
  text.word(std::string("src0_sel:") + select_name(inst.src[0].sel));
  if (row.sources > 1) text.word(std::string("src1_sel:") + select_name(inst.src[1].sel));
}

std::string dpp_control(unsigned ctrl) {
  static constexpr const char* row_ops[] = {"", "row_shl:", "row_shr:", "row_ror:"};
  std::string text = "quad_perm:[";
  for (unsigned i = 0; i < 4; ++i) {
    if (i) text += ',';
    text += static_cast<char>('0' + (ctrl >> 2 * i & 3));
  }
  if (ctrl <= 0xff) return text + "]";
  if (ctrl <= 0x12f) return row_ops[ctrl >> 4 & 3 ? (ctrl >> 4 & 3) + 1 : 1] + std::to_string(ctrl & 15);
  if (ctrl >= 0x150) return "row_newbcast:" + std::to_string(ctrl & 15);
  if (ctrl >= 0x142) return ctrl == 0x142 ? "row_bcast:15" : "row_bcast:31";
  if (ctrl >= 0x140) return ctrl == 0x140 ? "row_mirror" : "row_half_mirror";
  return ctrl == 0x130 ? "wave_shl:1" : ctrl == 0x134 ? "wave_rol:1" : ctrl == 0x138 ? "wave_shr:1" : "wave_ror:1";
}

void dpp_text(const Inst& inst, Text& text) {
  text.word(dpp_control(inst.dpp.ctrl));
  text.word("row_mask:" + hex(inst.dpp.row_mask));
  text.word("bank_mask:" + hex(inst.dpp.bank_mask));
  text.flag(inst.dpp.bound_ctrl, "bound_ctrl:1");
}

void vector_operands(const Inst& inst, const Row& row, Text& text) {
  if (row.dst.role != Role::none) text.operand(operand_text(inst.dst, row.dst.type));
  if (row.dst2.role == Role::mask) text.operand(operand_text(inst.dst2, Type::uint64));
  for (unsigned i = 0; i < row.sources; ++i) {
    const Role role = row.src[i].role;
    if (role == Role::mask && i < 3) text.operand(operand_text(inst.src[3], Type::uint64));
    if (role != Role::mask && role != Role::tied) text.operand(modified_text(inst.src[i], row.src[i].type));
  }
}

void output_modifiers(const Inst& inst, Text& text) {
  static constexpr const char* omod[] = {"", "mul:2", "mul:4", "div:2"};
  text.flag(inst.clamp, "clamp");
  text.flag(inst.omod, omod[inst.omod & 3]);
}

unsigned register_sources(const Row& row) {
  unsigned count = 0;
  for (const Slot& slot : row.src) count += slot.role == Role::reg;
  return count;
}

// op_sel[3:2] is a byte of the destination, and op_sel[2] no source's.
bool selects_byte(Op op) {
  return op == Op::v_cvt_sr_fp8_f32 || op == Op::v_cvt_sr_bf8_f32 || op == Op::v_cvt_scalef32_pk_fp4_f16 ||
         op == Op::v_cvt_scalef32_pk_fp4_bf16;
}

// The destination's bit is the last entry of the list, after those of the sources.
void op_sel_text(const Inst& inst, unsigned sources, Text& text) {
  if (selects_byte(inst.op)) sources = 3;
  text.bits("op_sel", (inst.op_sel & ((1u << sources) - 1)) | (inst.op_sel >> 3 & 1u) << sources, sources + 1);
}

void vector_text(const Inst& inst, const Row& row, Text& text) {
  vector_operands(inst, row, text);
  const unsigned sources = register_sources(row);
  if (inst.op_sel && inst.enc == Enc::vop3a) op_sel_text(inst, sources, text);
  if (inst.enc == Enc::vop3p) {
    const unsigned all = (1u << sources) - 1;
    if (inst.op_sel & all) text.bits("op_sel", inst.op_sel, sources);
    // All ones is what a packed operation means by itself, all zeros a mixed one.
    const bool mix = inst.op == Op::v_fma_mix_f32 || inst.op == Op::v_fma_mixlo_f16 || inst.op == Op::v_fma_mixhi_f16;
    if ((inst.op_sel_hi & all) != (mix ? 0 : all)) text.bits("op_sel_hi", inst.op_sel_hi, sources);
    if (inst.neg_lo & all) text.bits("neg_lo", inst.neg_lo, sources);
    if (inst.neg_hi & all) text.bits("neg_hi", inst.neg_hi, sources);
  }
  if (inst.op == Op::v_bitop3_b32 || inst.op == Op::v_bitop3_b16) text.word("bitop3:" + hex(inst.bitop3));
  output_modifiers(inst, text);
  if (inst.sdwa.on) sdwa_text(inst, row, text);
  if (inst.dpp.on) dpp_text(inst, text);
}

void mai_text(const Inst& inst, const Row& row, Text& text) {
  vector_operands(inst, row, text);
  if (inst.enc == Enc::mai_scale) {
    for (const Operand& scale : inst.scale) text.operand(operand_text(scale, Type::int32));
    if (inst.op_sel) text.bits("op_sel", inst.op_sel, 3);
    if (inst.op_sel_hi != 7) text.bits("op_sel_hi", inst.op_sel_hi, 3);
  }
  text.number("cbsz", inst.cbsz, inst.cbsz);
  text.number("abid", inst.abid, inst.abid && inst.enc == Enc::mai);
  text.number("blgp", inst.blgp, inst.blgp);
}

// --- memory

void cache_flags(const Inst& inst, Text& text) {
  text.flag(inst.sc0, inst.enc == Enc::smem ? "glc" : "sc0");
  text.flag(inst.nt, "nt");
  text.flag(inst.sc1, "sc1");
  text.flag(inst.lds && inst.enc == Enc::mubuf, "lds");
}

void present(const Operand& operand, Text& text) {
  if (operand.kind != Kind::none) text.operand(operand_text(operand, Type::int32));
}

std::string signed_hex(std::int32_t value) {
  std::string text = value < 0 ? "-" : "";
  text += hex(static_cast<unsigned long long>(value < 0 ? -std::int64_t{value} : value));
  return text;
}

void smem_text(const Inst& inst, Text& text) {
  present(inst.dst.kind != Kind::none ? inst.dst : inst.src[1], text);
  if (inst.src[2].kind != Kind::none) {
    text.operand(operand_text(inst.src[2], Type::int32));
    const bool soffset = inst.src[3].kind != Kind::none;
    text.operand(soffset ? operand_text(inst.src[3], Type::int32) : signed_hex(inst.imm));
    if (soffset && inst.imm) text.word("offset:" + hex(static_cast<std::uint32_t>(inst.imm)));
  }
  cache_flags(inst, text);
}

void ds_text(const Inst& inst, const Row& row, Text& text) {
  present(inst.dst, text);
  for (unsigned i = 0; i < 3; ++i) present(inst.src[i], text);
  if (row.address == Address::ds_pair) {
    text.number("offset0", inst.offset0, inst.offset0);
    text.number("offset1", inst.offset1, inst.offset1);
  } else {
    text.number("offset", inst.imm, inst.imm);
  }
}

void mubuf_text(const Inst& inst, const Row& row, Text& text) {
  if (row.address != Address::none) {
    present(inst.dst.kind != Kind::none && !row.returns_if_sc0 ? inst.dst : inst.src[1], text);
    for (unsigned i : {0u, 2u, 3u}) text.operand(operand_text(inst.src[i], Type::int32));
    text.flag(inst.idxen, "idxen");
    text.flag(inst.offen, "offen");
    text.number("offset", inst.imm, inst.imm);
  }
  cache_flags(inst, text);
}

void flat_text(const Inst& inst, Text& text) {
  present(inst.dst, text);
  text.operand(operand_text(inst.src[0], Type::int32));
  present(inst.src[1], text);
  if (inst.enc != Enc::flat) text.operand(operand_text(inst.src[2], Type::int32));
  text.number("offset", inst.imm, inst.imm);
  cache_flags(inst, text);
}

void body(const Inst& inst, const Row& row, Text& text) {
  switch (inst.enc) {
    case Enc::sop1: case Enc::sop2: case Enc::sopk: case Enc::sopc: case Enc::sopp: return scalar_text(inst, row, text);
    case Enc::smem: return smem_text(inst, text);
    case Enc::mai: case Enc::mai_scale: return mai_text(inst, row, text);
    case Enc::ds: return ds_text(inst, row, text);
    case Enc::mubuf: return mubuf_text(inst, row, text);
    case Enc::global: case Enc::flat: case Enc::scratch: return flat_text(inst, text);
    default: return vector_text(inst, row, text);
  }
}

}  // namespace

std::string full_mnemonic(const Inst& inst) {
  std::string name(mnemonic(inst.op));
  if (inst.sdwa.on) return name + "_sdwa";
  if (inst.dpp.on) return name + "_dpp";
  if (!row_of(inst.op).has_vop3_form()) return name;
  const bool is_short = inst.enc == Enc::vop1 || inst.enc == Enc::vop2 || inst.enc == Enc::vopc;
  return name + (is_short ? "_e32" : "_e64");
}

std::string disassemble(const Inst& inst) {
  if (inst.op == Op::unknown) return "unknown " + hex(static_cast<std::uint32_t>(inst.imm));
  Text text(inst);
  body(inst, row_of(inst.op), text);
  return text.take();
}

}  // namespace flymono
