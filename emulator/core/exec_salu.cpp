// Scalar arithmetic (SOP1, SOP2, SOPK, SOPC). EXEC plays no part; SCC rules stand beside each operation.
#include "lanes.hpp"

namespace flymono {
namespace {

void out32(Wave& w, const Code& c, u32 x) { w.s[c.dst] = x; }
void out64(Wave& w, const Code& c, u64 x) { w.set_pair(c.dst, x); }
i32 sx(u32 x) { return static_cast<i32>(x); }
bool overflow_add(u32 a, u32 b, u32 d) { return ((~(a ^ b) & (a ^ d)) >> 31) != 0; }
bool overflow_sub(u32 a, u32 b, u32 d) { return (((a ^ b) & (a ^ d)) >> 31) != 0; }

#define A32 const u32 a = s32(w, c, 0)
#define B32 const u32 b = s32(w, c, 1)
#define A64 const u64 a = s64(w, c, 0)
#define B64 const u64 b = s64(w, c, 1)
#define OP(name, body) t.add(#name, [](Wave& w, const Code& c) { (void)w; (void)c; body })
// result d, SCC = d != 0
#define NZ32(name, expr) OP(name, A32; B32; (void)b; const u32 d = expr; out32(w, c, d); w.scc = d != 0;)
#define NZ64(name, expr) OP(name, A64; B64; (void)b; const u64 d = expr; out64(w, c, d); w.scc = d != 0;)
#define KEEP2(name, expr) OP(name, A32; B32; out32(w, c, static_cast<u32>(expr));)
#define KEEP1(name, expr) OP(name, A32; out32(w, c, static_cast<u32>(expr));)

u32 bfe(u32 a, u32 b, bool sign) {
  const u32 offset = b & 31, width = b >> 16 & 127;
  if (!width) return 0;
  if (offset + width >= 32) return sign ? static_cast<u32>(sx(a) >> offset) : a >> offset;
  const u32 shift = 32 - offset - width;
  return sign ? static_cast<u32>(sx(a << shift) >> (shift + offset)) : a << shift >> (shift + offset);
}
u64 bfe64(u64 a, u32 b, bool sign) {
  const u32 offset = b & 63, width = b >> 16 & 127;
  if (!width) return 0;
  if (offset + width >= 64) return sign ? static_cast<u64>(static_cast<i64>(a) >> offset) : a >> offset;
  const u32 shift = 64 - offset - width;
  return sign ? static_cast<u64>(static_cast<i64>(a << shift) >> (shift + offset)) : a << shift >> (shift + offset);
}
u32 reverse(u32 x) {
  u32 r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
  return r;
}
u64 whole_quads(u64 x) {
  u64 r = 0;
  for (int i = 0; i < 64; i += 4)
    if (x >> i & 15) r |= u64{15} << i;
  return r;
}

// Bits of the result that depend on undefined bits (for the marks).
u32 rule_and(const Code&, const u32 v[3], const u32 u[3]) {
  return (u[0] & (v[1] | u[1])) | (u[1] & (v[0] | u[0]));
}
u32 rule_or(const Code&, const u32 v[3], const u32 u[3]) {
  return (u[0] & (~v[1] | u[1])) | (u[1] & (~v[0] | u[0]));
}
u32 rule_andn2(const Code&, const u32 v[3], const u32 u[3]) {
  return (u[0] & (~v[1] | u[1])) | (u[1] & (v[0] | u[0]));
}
u32 rule_orn2(const Code&, const u32 v[3], const u32 u[3]) {
  return (u[0] & (v[1] | u[1])) | (u[1] & (~v[0] | u[0]));
}
u32 rule_either(const Code&, const u32*, const u32 u[3]) { return u[0] | u[1]; }
u32 rule_copy(const Code&, const u32*, const u32 u[3]) { return u[0]; }

void add_arithmetic(Table& t) {
  OP(s_add_u32, A32; B32; const u64 d = u64{a} + b; w.scc = d >> 32; out32(w, c, static_cast<u32>(d)););
  OP(s_addc_u32, A32; B32; const u64 d = u64{a} + b + w.scc; w.scc = d >> 32; out32(w, c, static_cast<u32>(d)););
  OP(s_sub_u32, A32; B32; w.scc = b > a; out32(w, c, a - b););
  OP(s_subb_u32, A32; B32; const u64 d = u64{b} + w.scc; out32(w, c, a - b - w.scc); w.scc = d > a;);
  OP(s_add_i32, A32; B32; const u32 d = a + b; w.scc = overflow_add(a, b, d); out32(w, c, d););
  OP(s_sub_i32, A32; B32; const u32 d = a - b; w.scc = overflow_sub(a, b, d); out32(w, c, d););
  KEEP2(s_mul_i32, a * b);
  KEEP2(s_mul_hi_u32, u64{a} * b >> 32);
  KEEP2(s_mul_hi_i32, static_cast<u64>(i64{sx(a)} * sx(b)) >> 32);
  OP(s_min_i32, A32; B32; w.scc = sx(a) < sx(b); out32(w, c, w.scc ? a : b););
  OP(s_min_u32, A32; B32; w.scc = a < b; out32(w, c, w.scc ? a : b););
  OP(s_max_i32, A32; B32; w.scc = sx(a) >= sx(b); out32(w, c, w.scc ? a : b););
  OP(s_max_u32, A32; B32; w.scc = a >= b; out32(w, c, w.scc ? a : b););
#define SHIFT_ADD(n) \
  OP(s_lshl##n##_add_u32, A32; B32; const u64 d = (u64{a} << n) + b; w.scc = (d >> 32) != 0; out32(w, c, static_cast<u32>(d));)
  SHIFT_ADD(1);
  SHIFT_ADD(2);
  SHIFT_ADD(3);
  SHIFT_ADD(4);
  OP(s_abs_i32, A32; const u32 d = sx(a) < 0 ? 0u - a : a; out32(w, c, d); w.scc = d != 0;);
  OP(s_absdiff_i32, A32; B32; const u32 x = a - b; const u32 d = sx(x) < 0 ? 0u - x : x; out32(w, c, d); w.scc = d != 0;);
  const u32 k = kReadsDst;
  t.add("s_addk_i32", [](Wave& w, const Code& c) {
    const u32 a = w.s[c.dst], b = static_cast<u32>(c.inst->imm), d = a + b;
    w.scc = overflow_add(a, b, d);
    out32(w, c, d);
  }, k);
  t.add("s_mulk_i32", [](Wave& w, const Code& c) { w.s[c.dst] *= static_cast<u32>(c.inst->imm); }, k);
}

void add_logic(Table& t) {
#define BOTH(name, expr, rule)                                                                                  \
  t.add(#name "_b32", [](Wave& w, const Code& c) { A32; B32; const u32 d = expr; out32(w, c, d); w.scc = d != 0; }, 0, rule); \
  t.add(#name "_b64", [](Wave& w, const Code& c) { A64; B64; const u64 d = expr; out64(w, c, d); w.scc = d != 0; }, 0, rule)
  BOTH(s_and, a & b, rule_and);
  BOTH(s_or, a | b, rule_or);
  BOTH(s_xor, a ^ b, rule_either);
  BOTH(s_andn2, a & ~b, rule_andn2);
  BOTH(s_orn2, a | ~b, rule_orn2);
  BOTH(s_nand, ~(a & b), rule_and);
  BOTH(s_nor, ~(a | b), rule_or);
  BOTH(s_xnor, ~(a ^ b), rule_either);
  t.add("s_not_b32", [](Wave& w, const Code& c) { A32; out32(w, c, ~a); w.scc = ~a != 0; }, 0, rule_copy);
  t.add("s_not_b64", [](Wave& w, const Code& c) { A64; out64(w, c, ~a); w.scc = ~a != 0; }, 0, rule_copy);
  NZ32(s_lshl_b32, a << (b & 31));
  NZ32(s_lshr_b32, a >> (b & 31));
  NZ32(s_ashr_i32, static_cast<u32>(sx(a) >> (b & 31)));
#define SHIFT64(name, expr) OP(name, A64; B32; const u64 d = expr; out64(w, c, d); w.scc = d != 0;)
  SHIFT64(s_lshl_b64, a << (b & 63));
  SHIFT64(s_lshr_b64, a >> (b & 63));
  SHIFT64(s_ashr_i64, static_cast<u64>(static_cast<i64>(a) >> (b & 63)));
  NZ32(s_bfe_u32, bfe(a, b, false));
  NZ32(s_bfe_i32, bfe(a, b, true));
  SHIFT64(s_bfe_u64, bfe64(a, b, false));
  SHIFT64(s_bfe_i64, bfe64(a, b, true));
  KEEP2(s_bfm_b32, ((u32{1} << (a & 31)) - 1) << (b & 31));
  OP(s_bfm_b64, A32; B32; out64(w, c, ((u64{1} << (a & 63)) - 1) << (b & 63)););
  KEEP2(s_pack_ll_b32_b16, (a & 0xffff) | b << 16);
  KEEP2(s_pack_lh_b32_b16, (a & 0xffff) | (b & 0xffff0000));
  KEEP2(s_pack_hh_b32_b16, a >> 16 | (b & 0xffff0000));
}

void add_unary(Table& t) {
  t.add("s_mov_b32", [](Wave& w, const Code& c) { out32(w, c, s32(w, c, 0)); }, 0, rule_copy);
  t.add("s_mov_b64", [](Wave& w, const Code& c) { out64(w, c, s64(w, c, 0)); }, 0, rule_copy);
  OP(s_movk_i32, out32(w, c, static_cast<u32>(c.inst->imm)););
  t.add("s_cmov_b32", [](Wave& w, const Code& c) { if (w.scc) out32(w, c, s32(w, c, 0)); }, kReadsDst);
  t.add("s_cmov_b64", [](Wave& w, const Code& c) { if (w.scc) out64(w, c, s64(w, c, 0)); }, kReadsDst);
  t.add("s_cmovk_i32", [](Wave& w, const Code& c) { if (w.scc) out32(w, c, static_cast<u32>(c.inst->imm)); }, kReadsDst);
  OP(s_cselect_b32, A32; B32; out32(w, c, w.scc ? a : b););
  OP(s_cselect_b64, A64; B64; out64(w, c, w.scc ? a : b););
  OP(s_bcnt1_i32_b32, A32; const u32 d = static_cast<u32>(std::popcount(a)); out32(w, c, d); w.scc = d != 0;);
  OP(s_bcnt1_i32_b64, A64; const u32 d = static_cast<u32>(std::popcount(a)); out32(w, c, d); w.scc = d != 0;);
  OP(s_bcnt0_i32_b32, A32; const u32 d = static_cast<u32>(std::popcount(~a)); out32(w, c, d); w.scc = d != 0;);
  OP(s_bcnt0_i32_b64, A64; const u32 d = static_cast<u32>(std::popcount(~a)); out32(w, c, d); w.scc = d != 0;);
  KEEP1(s_ff1_i32_b32, a ? std::countr_zero(a) : -1);
  KEEP1(s_ff0_i32_b32, ~a ? std::countr_zero(~a) : -1);
  OP(s_ff1_i32_b64, A64; out32(w, c, static_cast<u32>(a ? std::countr_zero(a) : -1)););
  OP(s_ff0_i32_b64, A64; out32(w, c, static_cast<u32>(~a ? std::countr_zero(~a) : -1)););
  KEEP1(s_flbit_i32_b32, a ? std::countl_zero(a) : -1);
  OP(s_flbit_i32_b64, A64; out32(w, c, static_cast<u32>(a ? std::countl_zero(a) : -1)););
  OP(s_flbit_i32, A32; const u32 x = sx(a) < 0 ? ~a : a; out32(w, c, static_cast<u32>(x ? std::countl_zero(x) : -1)););
  KEEP1(s_brev_b32, reverse(a));
  OP(s_brev_b64, A64; out64(w, c, u64{reverse(static_cast<u32>(a))} << 32 | reverse(static_cast<u32>(a >> 32))););
  KEEP1(s_sext_i32_i16, static_cast<i16>(a));
  KEEP1(s_sext_i32_i8, static_cast<std::int8_t>(a));
  OP(s_wqm_b32, A32; const u32 d = static_cast<u32>(whole_quads(a)); out32(w, c, d); w.scc = d != 0;);
  OP(s_wqm_b64, A64; const u64 d = whole_quads(a); out64(w, c, d); w.scc = d != 0;);
  t.add("s_bitset0_b32", [](Wave& w, const Code& c) { w.s[c.dst] &= ~(u32{1} << (s32(w, c, 0) & 31)); }, kReadsDst);
  t.add("s_bitset1_b32", [](Wave& w, const Code& c) { w.s[c.dst] |= u32{1} << (s32(w, c, 0) & 31); }, kReadsDst);
  t.add("s_bitset0_b64", [](Wave& w, const Code& c) { out64(w, c, w.pair(c.dst) & ~(u64{1} << (s32(w, c, 0) & 63))); }, kReadsDst);
  t.add("s_bitset1_b64", [](Wave& w, const Code& c) { out64(w, c, w.pair(c.dst) | u64{1} << (s32(w, c, 0) & 63)); }, kReadsDst);
#define SAVEEXEC(name, expr)                                               \
  OP(name, A64; const u64 e = w.exec(); out64(w, c, e); const u64 d = expr; \
     w.set_exec(d); w.scc = d != 0;)
  SAVEEXEC(s_and_saveexec_b64, a & e);
  SAVEEXEC(s_or_saveexec_b64, a | e);
  SAVEEXEC(s_xor_saveexec_b64, a ^ e);
  SAVEEXEC(s_andn2_saveexec_b64, a & ~e);
  SAVEEXEC(s_orn2_saveexec_b64, a | ~e);
  SAVEEXEC(s_nand_saveexec_b64, ~(a & e));
  SAVEEXEC(s_nor_saveexec_b64, ~(a | e));
  SAVEEXEC(s_xnor_saveexec_b64, ~(a ^ e));
  SAVEEXEC(s_andn1_saveexec_b64, ~a & e);
  SAVEEXEC(s_orn1_saveexec_b64, ~a | e);
  OP(s_andn1_wrexec_b64, A64; const u64 d = ~a & w.exec(); w.set_exec(d); out64(w, c, d); w.scc = d != 0;);
  OP(s_andn2_wrexec_b64, A64; const u64 d = a & ~w.exec(); w.set_exec(d); out64(w, c, d); w.scc = d != 0;);
}

void add_compare(Table& t) {
#define CMP(cond, op)                                                                                             \
  OP(s_cmp_##cond##_i32, A32; B32; w.scc = sx(a) op sx(b););                                                      \
  OP(s_cmp_##cond##_u32, A32; B32; w.scc = a op b;);                                                              \
  t.add("s_cmpk_" #cond "_i32", [](Wave& w, const Code& c) { w.scc = sx(w.s[c.dst]) op c.inst->imm; }, kReadsDst); \
  t.add("s_cmpk_" #cond "_u32", [](Wave& w, const Code& c) { w.scc = w.s[c.dst] op u32(u16(c.inst->imm)); }, kReadsDst)
  CMP(eq, ==);
  CMP(lg, !=);
  CMP(gt, >);
  CMP(ge, >=);
  CMP(lt, <);
  CMP(le, <=);
  OP(s_cmp_eq_u64, A64; B64; w.scc = a == b;);
  OP(s_cmp_lg_u64, A64; B64; w.scc = a != b;);
  OP(s_bitcmp0_b32, A32; B32; w.scc = !(a >> (b & 31) & 1););
  OP(s_bitcmp1_b32, A32; B32; w.scc = a >> (b & 31) & 1;);
  OP(s_bitcmp0_b64, A64; B32; w.scc = !(a >> (b & 63) & 1););
  OP(s_bitcmp1_b64, A64; B32; w.scc = a >> (b & 63) & 1;);
}

}  // namespace

void add_salu(Table& t) {
  add_arithmetic(t);
  add_logic(t);
  add_unary(t);
  add_compare(t);
}

}  // namespace flymono
