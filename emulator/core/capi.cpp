#include "capi.h"

#include <algorithm>
#include <stdexcept>

#include "decode.hpp"
#include "machine.hpp"

namespace flymono {
namespace {

constexpr u64 kFirstByte = 4096, kLastByte = u64{1} << 47;  // user addresses

u32 word(const u8* p, u32 at) {
  u32 x;
  std::memcpy(&x, p + at, 4);
  return x;
}

// The descriptor's fields that say what a wave finds in its registers (code object v5; as emulator/codeobject_elf.py).
LaunchSpec spec_of(const flymono_launch& l) {
  const u8* d = l.descriptor;
  const u32 rsrc3 = word(d, 44), rsrc1 = word(d, 48), rsrc2 = word(d, 52), properties = word(d, 56) & 0xffff, preload = word(d, 56) >> 16;
  LaunchSpec s;
  s.kernel = l.kernel;
  s.workgroups = l.workgroups;
  s.workitems = l.workitems;
  s.kernarg = l.kernarg;
  s.lds_bytes = word(d, 0);
  s.vgprs = 8 * ((rsrc1 & 63) + 1);
  s.accum_offset = 4 * ((rsrc3 & 63) + 1);
  s.dispatch_ptr = properties >> 1 & 1;
  s.queue_ptr = properties >> 2 & 1;
  s.kernarg_ptr = properties >> 3 & 1;
  s.dispatch_id = properties >> 4 & 1;
  s.private_size = properties >> 6 & 1;
  s.preload_dwords = preload & 127;
  s.preload_offset = preload >> 7;
  s.id_x = rsrc2 >> 7 & 1;
  s.id_y = rsrc2 >> 8 & 1;
  s.id_z = rsrc2 >> 9 & 1;
  s.info = rsrc2 >> 10 & 1;
  return s;
}

// Shared memory by name, all else as one range between two of them.
void add_memory(Memory& memory, const flymono_launch& l) {
  std::vector<flymono_memory> shared(l.shared, l.shared + l.shared_count);
  std::sort(shared.begin(), shared.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  u64 at = kFirstByte;
  auto own = [&](u64 end) {
    if (end > at) memory.add("memory at " + hex(at), at, end - at, true).counted = false;
  };
  for (const flymono_memory& m : shared) {
    own(m.address);
    memory.add(m.name, m.address, m.bytes, true, true);
    at = m.address + m.bytes;
  }
  own(kLastByte);
}

std::string text_of(const Machine& m) {
  std::string all;
  for (const Finding& f : m.findings)
    all += (all.empty() ? "" : "\n") + f.kind + ": " + f.message + "\n  " + f.kernel + ", workgroup " + std::to_string(f.workgroup) +
           " wave " + std::to_string(f.wave) + ", pc " + hex(static_cast<u64>(f.pc)) + ": " + f.text;
  return all;
}

std::string run(const flymono_launch& l) {
  const auto arch = arch_named(l.arch);
  if (!arch) return std::string("unknown arch ") + l.arch;
  Options o;
  o.arch = *arch;
  o.check = l.check;
  o.seed = l.seed;
  o.clock_on_standstill = l.clock_on_standstill;
  o.roster.assign(l.roster, l.roster + l.roster_count);
  Machine m(o);
  add_memory(m.memory, l);
  Program p = load(*arch, std::vector<u8>(l.text, l.text + l.text_bytes));
  LaunchSpec s = spec_of(l);
  prepare(p, m.options, s.accum_offset, s.vgprs, s.stages);
  const auto entry = p.index_of.find(static_cast<u32>(l.entry));
  if (entry == p.index_of.end()) return "the entry point is no instruction";
  s.entry = entry->second;
  m.add_grid(p, s);
  if (l.go_on)
    m.progress = [&](u64) {
      if (!l.go_on(l.go_on_argument)) throw std::runtime_error("the launch was ended");
    };
  m.run();
  return text_of(m);
}

}  // namespace
}  // namespace flymono

extern "C" {

uint32_t flymono_capi_version(void) { return FLYMONO_CAPI_VERSION; }

int flymono_run(const flymono_launch* launch, char* message, size_t room) {
  std::string wrong;
  try {
    wrong = flymono::run(*launch);
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  if (room) {
    const std::size_t n = std::min(room - 1, wrong.size());
    std::memcpy(message, wrong.data(), n);
    message[n] = 0;
  }
  return wrong.empty() ? 0 : 1;
}

}
