#include "code.hpp"

#include <elf.h>

namespace {

constexpr char kDescriptor[] = ".kd";
constexpr std::size_t kDescriptorBytes = 64, kEntryOffset = 16;

template <class T>
T at(const std::uint8_t* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

struct Sections {
  const std::uint8_t* image;
  std::vector<Elf64_Shdr> all;
  const char* names;

  const std::uint8_t* bytes_at(std::uint64_t address) const {
    for (const Elf64_Shdr& s : all)
      if (s.sh_type == SHT_PROGBITS && address >= s.sh_addr && address < s.sh_addr + s.sh_size) return image + s.sh_offset + (address - s.sh_addr);
    return nullptr;
  }
};

void add_kernels(CodeObject& code, const Sections& sections, const Elf64_Shdr& table, std::uint64_t text_address) {
  const char* names = reinterpret_cast<const char*>(sections.image + sections.all.at(table.sh_link).sh_offset);
  for (std::uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
    const auto symbol = at<Elf64_Sym>(sections.image + table.sh_offset + i * sizeof(Elf64_Sym));
    std::string name = names + symbol.st_name;
    const std::size_t end = sizeof kDescriptor - 1;
    if (name.size() <= end || name.compare(name.size() - end, end, kDescriptor)) continue;
    const std::uint8_t* descriptor = sections.bytes_at(symbol.st_value);
    if (!descriptor) continue;
    Kernel k;
    k.descriptor.assign(descriptor, descriptor + kDescriptorBytes);
    k.entry = symbol.st_value + static_cast<std::uint64_t>(at<std::int64_t>(descriptor + kEntryOffset)) - text_address;
    code.kernels[name.substr(0, name.size() - end)] = std::move(k);
  }
}

}  // namespace

std::optional<CodeObject> CodeObject::read(const std::uint8_t* image) {
  const auto header = at<Elf64_Ehdr>(image);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64) return {};
  Sections sections{image, {}, nullptr};
  for (unsigned i = 0; i < header.e_shnum; ++i) sections.all.push_back(at<Elf64_Shdr>(image + header.e_shoff + i * sizeof(Elf64_Shdr)));
  if (header.e_shstrndx >= sections.all.size()) return {};
  sections.names = reinterpret_cast<const char*>(image + sections.all[header.e_shstrndx].sh_offset);
  CodeObject code;
  code.mach = header.e_flags & 0xff;
  std::uint64_t text_address = 0;
  for (const Elf64_Shdr& s : sections.all)
    if (!std::strcmp(sections.names + s.sh_name, ".text")) {
      text_address = s.sh_addr;
      code.text.assign(image + s.sh_offset, image + s.sh_offset + s.sh_size);
    }
  for (const Elf64_Shdr& s : sections.all)
    if (s.sh_type == SHT_SYMTAB || s.sh_type == SHT_DYNSYM) add_kernels(code, sections, s, text_address);
  return code;
}
