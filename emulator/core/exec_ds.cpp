// LDS reads and writes. LDS is immediate (a wave's DS operations are in order); in check mode the destination
// registers stay pending until lgkmcnt retires them, undefined bytes travel with the data, and optionally bytes shared
// between waves without a barrier are reported.
#include "ds.hpp"

namespace flymono {

void ds_issue(Wave& w, const Code& c, u32 row, u32 dwords) {
  Pending p;
  p.cls = Pending::ds;
  p.first = static_cast<u16>(row);
  p.count = static_cast<u16>(dwords);
  issue(w, c, std::move(p));
}

void ds_issue_write(Wave& w, const Code& c, const u32* at, u64 mask, u32 bytes, bool last) {
  Span64 lanes;
  lanes.mask = mask;
  for (int i = 0; i < kLanes; ++i) lanes.address[i] = at[i];
  Pending p;
  p.cls = Pending::ds;
  p.weight = last;
  p.bytes = static_cast<u8>(bytes);
  p.lanes = keep_lanes(w, lanes);
  issue(w, c, std::move(p));
}

void note_early_writes(Wave& w) {
  w.wg->early_writes -= static_cast<u32>(w.early.size());
  w.early.clear();
  for (const Pending& p : w.lgkm) {
    if (!p.bytes) continue;
    EarlyWrite e;
    e.code = p.code;
    e.bytes = p.bytes;
    e.mask = p.lanes->mask;
    for (int i = 0; i < kLanes; ++i) e.at[i] = static_cast<u32>(p.lanes->address[i]);
    w.early.push_back(e);
  }
  w.wg->early_writes += static_cast<u32>(w.early.size());
}

static bool overlap(const EarlyWrite& e, u32 at, u32 bytes) {
  for (u64 left = e.mask; left; left &= left - 1) {
    const u32 x = e.at[std::countr_zero(left)];
    if (x < at + bytes && at < x + e.bytes) return true;
  }
  return false;
}

void check_early_writes(Wave& w, const Code& c, const u32* at, u64 mask, u32 bytes) {
  for (u32 other = 0; other < w.grid->waves_per_group; ++other) {
    if (other == w.id) continue;
    for (const EarlyWrite& e : w.wg->waves[other].early)
      for (u64 left = mask; left; left &= left - 1) {
        const int i = std::countr_zero(left);
        if (!overlap(e, at[i], bytes)) continue;
        report(w, c, "missing-wait", "LDS byte " + std::to_string(at[i]) + " was written by wave " + std::to_string(other) +
               ", which passed the barrier without waiting for that write (lgkmcnt)", i, w.grid->program->code[e.code].inst->pc);
        return;
      }
  }
}

void lds_access(Wave& w, const Code& c, const u32* at, u64 mask, u32 bytes, bool write) {
  Workgroup& g = *w.wg;
  const u32 mine = (g.epoch << 8) | (w.id + 1u);
  for (u64 left = mask; left; left &= left - 1) {
    const int i = std::countr_zero(left);
    for (u32 d = at[i] >> 2; d <= (at[i] + bytes - 1) >> 2; ++d) {
      const u32 writer = g.lds_writer[d], reader = g.lds_reader[d];
      const bool raced = (writer >> 8 == g.epoch && writer && writer != mine) ||
                         (write && reader >> 8 == g.epoch && reader && reader != mine);
      if (raced)
        report(w, c, "lds-race", "LDS byte " + std::to_string(d * 4) + " is also " + (writer && writer != mine ? "written" : "read") +
               " by wave " + std::to_string(((writer && writer != mine ? writer : reader) & 255) - 1) +
               " and no barrier lies between", i);
      (write ? g.lds_writer[d] : g.lds_reader[d]) = mine;
    }
  }
}

u64 lds_lanes(Wave& w, const Code& c, const u32* address, u32 offset, u32 bytes, u32 align, u32* at) {
  const u32 size = static_cast<u32>(w.wg->lds.size());
  const u64 exec = w.exec();
  u32 low = 0;
  alignas(64) u32 inside[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    at[i] = address[i] + offset;
    inside[i] = (at[i] <= size - bytes && size >= bytes) ? ~0u : 0u;
  }
  const u64 ok = movemask(inside) & exec;
  if (ok != exec) {
    const int i = std::countr_zero(exec & ~ok);
    report(w, c, "lds-out-of-bounds", "LDS address " + std::to_string(at[i]) + " (" + std::to_string(bytes) + " bytes) of " +
           std::to_string(size) + " allocated", i);
  }
  if (w.check) {
    if (exec == kAllLanes)
      for (int i = 0; i < kLanes; ++i) low |= at[i];
    else
      for (u64 left = ok; left; left &= left - 1) low |= at[std::countr_zero(left)];
    if (low & (align - 1)) report(w, c, "misaligned", "LDS address is no multiple of " + std::to_string(align));
  }
  return ok;
}

namespace {

bool contiguous(const u32* at, u32 bytes) {
  u32 differ = 0;
  for (u32 i = 0; i < kLanes; ++i) differ |= at[i] ^ (at[0] + i * bytes);
  return differ == 0;
}

u32 marks_at(const Workgroup& g, u32 at, u32 bytes) {
  const u32 word = at >> 6, bit = at & 63;
  u64 x = g.lds_undefined[word] >> bit;
  if (bit + bytes > 64) x |= g.lds_undefined[word + 1] << (64 - bit);
  return static_cast<u32>(x & ((u64{1} << bytes) - 1));
}

void set_marks(Workgroup& g, u32 at, u32 bytes, u32 value) {
  for (u32 k = 0; k < bytes; ++k) {
    u64& word = g.lds_undefined[(at + k) >> 6];
    const u64 bit = u64{1} << ((at + k) & 63);
    word = (value >> k & 1) ? word | bit : word & ~bit;
  }
}

// One address per lane, N dwords to rows from `row`.
template <u32 N>
void read_at(Wave& w, const u32* at, u64 ok, u32 row) {
  const u8* lds = w.wg->lds.data();
  u32* d = w.row(row);
  if (ok == kAllLanes) {
    if (N == 1 && contiguous(at, 4)) {
      std::memcpy(d, lds + at[0], 256);
    } else {
      for (u32 i = 0; i < kLanes; ++i) {
        u32 x[N];
        std::memcpy(x, lds + at[i], 4 * N);
        for (u32 k = 0; k < N; ++k) d[k * kLanes + i] = x[k];
      }
    }
  } else {
    for (u64 left = w.exec(); left; left &= left - 1) {
      const u32 i = static_cast<u32>(std::countr_zero(left));
      u32 x[N] = {};
      if (ok >> i & 1) std::memcpy(x, lds + at[i], 4 * N);
      for (u32 k = 0; k < N; ++k) d[k * kLanes + i] = x[k];
    }
  }
}

template <u32 N>
void read_marks(Wave& w, const u32* at, u64 ok, u32 row) {
  const Workgroup& g = *w.wg;
  const u64 exec = w.exec();
  u32 any = 0;
  alignas(64) u32 m[kLanes] = {};
  for (u64 left = ok; left; left &= left - 1) {
    const int i = std::countr_zero(left);
    m[i] = marks_at(g, at[i], 4 * N);
    any |= m[i];
  }
  for (u32 d = 0; d < N; ++d)
    for (u32 k = 0; k < 4; ++k) {
      u64& plane = w.vund[row + d].b[k];
      plane &= ~exec;
      if (any)
        for (u64 left = ok; left; left &= left - 1) {
          const int i = std::countr_zero(left);
          plane |= u64{m[i] >> (4 * d + k) & 1} << i;
        }
    }
}

template <u32 N>
void write_at(Wave& w, const u32* at, u64 ok, const u32* d) {
  u8* lds = w.wg->lds.data();
  if (N == 1 && ok == kAllLanes && contiguous(at, 4)) {
    std::memcpy(lds + at[0], d, 256);
    return;
  }
  for (u64 left = ok; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    u32 x[N];
    for (u32 k = 0; k < N; ++k) x[k] = d[k * kLanes + i];
    std::memcpy(lds + at[i], x, 4 * N);
  }
}

template <u32 N>
void write_marks(Wave& w, const u32* at, u64 ok, u32 row, u32 bytes = 4 * N) {
  Workgroup& g = *w.wg;
  u64 any = 0;
  for (u32 d = 0; d < N; ++d)
    for (u64 plane : w.vund[row + d].b) any |= plane;
  any &= ok;
  for (u64 left = ok; left; left &= left - 1) {
    const int i = std::countr_zero(left);
    if (!any && (at[i] & 63) + bytes <= 64) {
      g.lds_undefined[at[i] >> 6] &= ~(((u64{1} << bytes) - 1) << (at[i] & 63));
      continue;
    }
    u32 m = 0;
    for (u32 k = 0; k < bytes; ++k) m |= static_cast<u32>(w.vund[row + k / 4].b[k & 3] >> i & 1) << k;
    set_marks(g, at[i], bytes, m);
  }
}

// Two lanes that write different data to one address in one instruction: the winner is not specified.
template <u32 N>
void check_conflicts(Wave& w, const Code& c, const u32* at, u64 ok, const u32* d) {
  u32 last = 0;
  bool rising = true, first = true;
  for (u64 left = ok; left && rising; left &= left - 1) {
    const u32 a = at[std::countr_zero(left)];
    rising = first || a > last;
    last = a;
    first = false;
  }
  if (rising) return;
  u8 slot[256];
  std::memset(slot, 0xff, sizeof slot);
  for (u64 left = ok; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    u32 h = (at[i] * 0x9e3779b1u) >> 24;
    while (slot[h] != 0xff && at[slot[h]] != at[i]) h = (h + 1) & 255;
    if (slot[h] == 0xff) {
      slot[h] = static_cast<u8>(i);
      continue;
    }
    for (u32 k = 0; k < N; ++k)
      if (d[k * kLanes + i] != d[k * kLanes + slot[h]])
        return report(w, c, "lds-conflict", "lanes " + std::to_string(slot[h]) + " and " + std::to_string(i) + " write different data to LDS address " +
                      std::to_string(at[i]) + " in one instruction", static_cast<int>(i));
  }
}

u32 offset16(const Code& c) { return static_cast<u32>(c.inst->imm) & 0xffff; }

template <u32 N>
constexpr u32 natural = N == 1 ? 4 : N == 2 ? 8 : N == 3 ? 4 : 16;

template <u32 N>
void read(Wave& w, const Code& c) {
  alignas(64) u32 at[kLanes];
  const u64 ok = lds_lanes(w, c, w.row(c.src[0].index), offset16(c), 4 * N, natural<N>, at);
  if (w.check) {
    if (w.wg->early_writes) check_early_writes(w, c, at, ok, 4 * N);
    if (w.grid->machine->options.lds_race) lds_access(w, c, at, ok, 4 * N, false);
    read_marks<N>(w, at, ok, c.dst);
  }
  read_at<N>(w, at, ok, c.dst);
  if (w.check) ds_issue(w, c, c.dst, N);
}

template <u32 N, u32 Step>
void read2(Wave& w, const Code& c) {
  alignas(64) u32 at[2][kLanes];
  const u32* address = w.row(c.src[0].index);
  const u32 offsets[2] = {c.inst->offset0, c.inst->offset1};
  u64 ok[2];
  for (int k = 0; k < 2; ++k) ok[k] = lds_lanes(w, c, address, offsets[k] * Step, 4 * N, 4 * N, at[k]);
  for (u32 k = 0; k < 2; ++k) {  // both addresses were taken before a register is written
    if (w.check) {
      if (w.wg->early_writes) check_early_writes(w, c, at[k], ok[k], 4 * N);
      if (w.grid->machine->options.lds_race) lds_access(w, c, at[k], ok[k], 4 * N, false);
      read_marks<N>(w, at[k], ok[k], c.dst + k * N);
    }
    read_at<N>(w, at[k], ok[k], c.dst + k * N);
  }
  if (w.check) ds_issue(w, c, c.dst, 2 * N);
}

template <class T, int Half>  // Half: 0 whole register, 1 low half kept apart, 2 high half
void read_small(Wave& w, const Code& c) {
  alignas(64) u32 at[kLanes];
  const u64 ok = lds_lanes(w, c, w.row(c.src[0].index), offset16(c), sizeof(T), sizeof(T), at);
  const u64 exec = w.exec();
  if (w.check && w.wg->early_writes) check_early_writes(w, c, at, ok, sizeof(T));
  if (w.check && w.grid->machine->options.lds_race) lds_access(w, c, at, ok, sizeof(T), false);
  u32* d = w.row(c.dst);
  for (u64 left = exec; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    T x = 0;
    u32 m = 0;
    if (ok >> i & 1) {
      std::memcpy(&x, w.wg->lds.data() + at[i], sizeof x);
      if (w.check) m = marks_at(*w.wg, at[i], sizeof(T));
    }
    const u32 wide = static_cast<u32>(static_cast<i32>(x));
    d[i] = Half == 0 ? wide : Half == 1 ? (d[i] & 0xffff0000) | (wide & 0xffff) : (d[i] & 0xffff) | wide << 16;
    if (!w.check) continue;
    for (u32 k = 0; k < 4; ++k) {
      if ((Half == 1 && k > 1) || (Half == 2 && k < 2)) continue;
      const u32 byte = Half == 2 ? k - 2 : k;
      const bool undefined = byte < sizeof(T) ? m >> byte & 1 : (std::is_signed_v<T> && m);
      u64& plane = w.vund[c.dst].b[k];
      plane = undefined ? plane | u64{1} << i : plane & ~(u64{1} << i);
    }
  }
  if (w.check) ds_issue(w, c, c.dst, 1);
}

template <u32 N>
void write_one(Wave& w, const Code& c, int operand, u32 offset, u32 align, bool last = true) {
  alignas(64) u32 at[kLanes];
  const u64 ok = lds_lanes(w, c, w.row(c.src[0].index), offset, 4 * N, align, at);
  const u32 row = c.src[operand].index;
  if (w.check) {
    if (w.grid->machine->options.lds_race) lds_access(w, c, at, ok, 4 * N, true);
    check_conflicts<N>(w, c, at, ok, w.row(row));
    write_marks<N>(w, at, ok, row);
  }
  write_at<N>(w, at, ok, w.row(row));
  if (w.check) ds_issue_write(w, c, at, ok, 4 * N, last);
}

template <u32 N>
void write(Wave& w, const Code& c) {
  write_one<N>(w, c, 1, offset16(c), natural<N>);
}

template <u32 N, u32 Step>
void write2(Wave& w, const Code& c) {
  write_one<N>(w, c, 1, c.inst->offset0 * Step, 4 * N, false);
  write_one<N>(w, c, 2, c.inst->offset1 * Step, 4 * N);
}

template <class T, u32 Shift>
void write_small(Wave& w, const Code& c) {
  alignas(64) u32 at[kLanes];
  const u64 ok = lds_lanes(w, c, w.row(c.src[0].index), offset16(c), sizeof(T), sizeof(T), at);
  const u32 row = c.src[1].index;
  if (w.check && w.grid->machine->options.lds_race) lds_access(w, c, at, ok, sizeof(T), true);
  for (u64 left = ok; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    const T x = static_cast<T>(w.row(row)[i] >> Shift);
    std::memcpy(w.wg->lds.data() + at[i], &x, sizeof x);
    if (!w.check) continue;
    u32 m = 0;
    for (u32 k = 0; k < sizeof(T); ++k) m |= static_cast<u32>(w.vund[row].b[k + Shift / 8] >> i & 1) << k;
    set_marks(*w.wg, at[i], sizeof(T), m);
  }
  if (w.check) ds_issue_write(w, c, at, ok, sizeof(T));
}

}  // namespace

void add_ds(Table& t) {
  t.add("ds_read_b32", read<1>);
  t.add("ds_read_b64", read<2>);
  t.add("ds_read_b96", read<3>);
  t.add("ds_read_b128", read<4>);
  t.add("ds_read2_b32", read2<1, 4>);
  t.add("ds_read2_b64", read2<2, 8>);
  t.add("ds_read2st64_b32", read2<1, 256>);
  t.add("ds_read2st64_b64", read2<2, 512>);
  t.add("ds_read_u8", read_small<u8, 0>);
  t.add("ds_read_i8", read_small<std::int8_t, 0>);
  t.add("ds_read_u16", read_small<u16, 0>);
  t.add("ds_read_i16", read_small<i16, 0>);
  t.add("ds_read_u8_d16", read_small<u8, 1>, kReadsDst);
  t.add("ds_read_u8_d16_hi", read_small<u8, 2>, kReadsDst);
  t.add("ds_read_i8_d16", read_small<std::int8_t, 1>, kReadsDst);
  t.add("ds_read_i8_d16_hi", read_small<std::int8_t, 2>, kReadsDst);
  t.add("ds_read_u16_d16", read_small<u16, 1>, kReadsDst);
  t.add("ds_read_u16_d16_hi", read_small<u16, 2>, kReadsDst);
  t.add("ds_write_b32", write<1>);
  t.add("ds_write_b64", write<2>);
  t.add("ds_write_b96", write<3>);
  t.add("ds_write_b128", write<4>);
  t.add("ds_write2_b32", write2<1, 4>);
  t.add("ds_write2_b64", write2<2, 8>);
  t.add("ds_write2st64_b32", write2<1, 256>);
  t.add("ds_write2st64_b64", write2<2, 512>);
  t.add("ds_write_b8", write_small<u8, 0>);
  t.add("ds_write_b16", write_small<u16, 0>);
  t.add("ds_write_b8_d16_hi", write_small<u8, 16>);
  t.add("ds_write_b16_d16_hi", write_small<u16, 16>);
}

}  // namespace flymono
