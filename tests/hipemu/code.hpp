// A code object as the stand-in loads it: .text, and descriptor and entry of its kernels.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

struct Kernel {
  std::uint64_t entry = 0;               // from the start of .text
  std::vector<std::uint8_t> descriptor;  // 64 bytes
};

struct CodeObject {
  std::uint32_t mach = 0;
  std::vector<std::uint8_t> text;
  std::map<std::string, Kernel> kernels;

  // From an image in memory, whose size only its header tells; empty if it is no 64-bit ELF file.
  static std::optional<CodeObject> read(const std::uint8_t* image);
};
