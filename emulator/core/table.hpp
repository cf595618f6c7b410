// Which function executes which operation. Every exec_*.cpp adds its family; prepare.cpp looks them up.
#pragma once

#include <string_view>
#include <vector>

#include "machine.hpp"

namespace flymono {

enum Flag : u32 {
  kF16 = 1,          // neg/abs act on bit 15
  kF64 = 2,          // neg/abs act on bit 63
  kReadsDst = 4,     // D is also a source
  kReadsVcc = 8,     // implicit VCC source
  kClamp = 16,       // float result: clamp to [0, 1] is supported
  kWholeWave = 32,   // ignores EXEC
  kOwnMarks = 64,    // `shadow` is the entry's own
  kWaits = 128,      // decides itself what a pending register means
  kByteDst = 512,    // writes the byte of D that op_sel[3:2] names
  kHalfDst = 256,    // writes a part of D chosen by op_sel bit 3 (the rest is kept)
};

struct Entry {
  Handler fn = nullptr;
  u32 flags = 0;
  BitRule rule = nullptr;
  Handler shadow = nullptr;
};

class Table {
 public:
  Table();
  // Unknown names are ignored: ops.def lists what can be decoded, this table what can be executed.
  void add(std::string_view name, Handler fn, u32 flags = 0, BitRule rule = nullptr, Handler shadow = nullptr);
  const Entry& operator[](Op op) const { return entries_[static_cast<std::size_t>(op)]; }

 private:
  std::vector<Entry> entries_;
};

const Table& table();

void add_salu(Table&);
void add_salu_control(Table&);
void add_smem(Table&);
void add_valu_int(Table&);
void add_valu_int64(Table&);
void add_valu_cmp(Table&);
void add_valu_float(Table&);
void add_valu_packed(Table&);
void add_valu_half(Table&);
void add_trans(Table&);
void add_convert(Table&);
void add_lane(Table&);
void add_mfma(Table&);
void add_ds(Table&);
void add_ds_atomic(Table&);
void add_vmem(Table&);
void add_vmem_atomic(Table&);

}  // namespace flymono
