// Text of single operands and of immediates that have names.
#pragma once

#include <cstdint>
#include <string>

#include "inst.hpp"
#include "optable.hpp"

namespace flymono {

std::string hex(unsigned long long value);
std::string operand_text(const Operand& operand, Type type);    // without modifiers
std::string modified_text(const Operand& operand, Type type);   // with sext, abs and neg
std::string immediate_text(const Inst& inst, Imm kind);         // simm16, counters, hwreg, target

}  // namespace flymono
