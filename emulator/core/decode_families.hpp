// One decoder a group of encodings; decode.cpp chooses among them.
#pragma once

#include "decode_operand.hpp"

namespace flymono {

// Each fills `inst` (op, enc and size among it) or throws Malformed.
void decode_scalar(const Words& code, Inst& inst);  // SOP1, SOP2, SOPK, SOPC, SOPP
void decode_smem(const Words& code, Inst& inst);
void decode_vop(const Words& code, Inst& inst);     // VOP1, VOP2, VOPC: plain, literal, SDWA, DPP
void decode_vop3(const Words& code, Inst& inst);    // VOP3A, VOP3B, VOP3P, MAI, scaled MFMA
void decode_ds(const Words& code, Inst& inst);
void decode_mubuf(const Words& code, Inst& inst);
void decode_flat(const Words& code, Inst& inst);

// The row of an opcode that this arch has, or Malformed.
const Row& row_on(const Words& code, Family family, unsigned number);

}  // namespace flymono
