// Text of an instruction, near LLVM's syntax: for messages, listings and tests.
#pragma once

#include <string>

#include "inst.hpp"

namespace flymono {

std::string disassemble(const Inst& inst);

// The mnemonic with the suffix of its encoding (_e32, _e64, _sdwa, _dpp), as LLVM prints it.
std::string full_mnemonic(const Inst& inst);

}  // namespace flymono
