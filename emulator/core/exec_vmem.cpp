// Buffer, global and flat loads and stores.
#include "outside.hpp"
#include "vmem.hpp"

namespace flymono {
namespace {

inline void fetch(void* to, u64 from, std::size_t bytes, bool outside) {
  if (outside) return outside::load(to, from, static_cast<u32>(bytes));
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
}

inline void put(u64 to, const void* from, std::size_t bytes, bool outside) {
  if (outside) return outside::store(to, from, static_cast<u32>(bytes));
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
}

// ---- loads: how one element reaches its register(s)
template <u32 N>
void load_outside(Wave& w, const Code& c, const Span64& lanes) {
  u32* d = w.row(c.dst);
  for (u64 left = lanes.mask | lanes.zero; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    u32 x[N] = {};
    if (lanes.mask >> i & 1) outside::load(x, lanes.address[i], 4 * N);
    for (u32 k = 0; k < N; ++k) d[k * kLanes + i] = x[k];
  }
}

template <u32 N>
void load_dwords(Wave& w, const Code& c, const Span64& lanes) {
  u32* d = w.row(c.dst);
  if (lanes.outside) [[unlikely]] return load_outside<N>(w, c, lanes);
  if (lanes.contiguous) {
    const u8* p = reinterpret_cast<const u8*>(lanes.address[0]);
    if constexpr (N == 1) {
      std::memcpy(d, p, 256);
    } else {
      for (int i = 0; i < kLanes; ++i) {
        u32 x[N];
        std::memcpy(x, p + std::size_t{4 * N} * static_cast<std::size_t>(i), 4 * N);
        for (u32 k = 0; k < N; ++k) d[k * kLanes + static_cast<u32>(i)] = x[k];
      }
    }
    return;
  }
  if (lanes.zero)
    for (u32 k = 0; k < N; ++k)
      for (u64 left = lanes.zero; left; left &= left - 1) d[k * kLanes + static_cast<u32>(std::countr_zero(left))] = 0;
  auto one = [&](u32 i) {
    u32 x[N];
    std::memcpy(x, reinterpret_cast<const void*>(lanes.address[i]), 4 * N);
    for (u32 k = 0; k < N; ++k) d[k * kLanes + i] = x[k];
  };
  if (lanes.mask == kAllLanes)
    for (u32 i = 0; i < kLanes; ++i) one(i);
  else
    for (u64 left = lanes.mask; left; left &= left - 1) one(static_cast<u32>(std::countr_zero(left)));
}

enum class Part { whole, low, high };  // d16 forms write one half of D

template <class T, Part P>
void load_small(Wave& w, const Code& c, const Span64& lanes) {
  u32* d = w.row(c.dst);
  for (u64 left = lanes.mask | lanes.zero; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    T x = 0;
    if (lanes.mask >> i & 1) fetch(&x, lanes.address[i], sizeof x, lanes.outside);
    const u32 wide = static_cast<u32>(static_cast<i32>(x));
    if constexpr (P == Part::whole) d[i] = wide;
    // With ECC the hardware clears the other half of a d16 load.
    if constexpr (P == Part::low) d[i] = wide & 0xffff;
    if constexpr (P == Part::high) d[i] = wide << 16;
  }
}

template <u32 N>
bool lds_range(Wave& w, const Code& c, const Span64& lanes) {
  const u64 end = u64{lanes.lds_base} + (N == 1 ? 4u : 16u) * 63 + 4 * N;
  if (end <= w.wg->lds.size()) return true;
  report(w, c, "lds-out-of-bounds", "load to LDS bytes " + std::to_string(lanes.lds_base) + " .. " + std::to_string(end) + " of " +
         std::to_string(w.wg->lds.size()));
  return false;
}

void mark_lds(Workgroup& g, u64 at, u64 bytes, bool undefined) {
  for (u64 b = at; b < at + bytes; ++b) {
    const u64 bit = u64{1} << (b & 63);
    g.lds_undefined[b >> 6] = undefined ? g.lds_undefined[b >> 6] | bit : g.lds_undefined[b >> 6] & ~bit;
  }
}

template <u32 N>
void load_lds(Wave& w, const Code&, const Span64& lanes) {  // buffer_load ... lds, global_load_lds_*
  Workgroup& g = *w.wg;
  for (u64 left = lanes.mask | lanes.zero; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    const u64 at = lanes.lds_base + u64{N == 1 ? 4u : 16u} * i;
    if (lanes.contiguous)
      fetch(g.lds.data() + at, lanes.address[0] + u64{4 * N} * i, 4 * N, lanes.outside);
    else if (lanes.mask >> i & 1)
      fetch(g.lds.data() + at, lanes.address[i], 4 * N, lanes.outside);
    else
      std::memset(g.lds.data() + at, 0, 4 * N);
    if (w.check) mark_lds(g, at, 4 * N, false);
  }
}

// The bytes arrive with the wait: until then they count as undefined.
template <u32 N>
void to_lds(Wave& w, const Code& c, Span64& lanes) {
  lanes.lds_base = (w.s[kM0] & 0x3ffff) + static_cast<u32>(c.inst->imm);
  if (!lds_range<N>(w, c, lanes)) return;
  if (!w.check) return load_lds<N>(w, c, lanes);
  Pending p;
  p.cls = Pending::vm;
  for (u64 left = lanes.mask | lanes.zero; left; left &= left - 1)
    mark_lds(*w.wg, lanes.lds_base + u64{N == 1 ? 4u : 16u} * static_cast<u64>(std::countr_zero(left)), 4 * N, true);
  p.load = load_lds<N>;
  p.lanes = keep_lanes(w, lanes);
  issue(w, c, std::move(p));
}

void partial_load(Wave& w, const Code& c, u32 dwords, const Span64& lanes, const Reach& reach) {
  for (u64 left = lanes.mask | lanes.zero; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    for (u32 k = 0; k < dwords; ++k) {
      u32 x = 0;
      if ((lanes.mask >> i & 1) && k < reach.partial[i]) fetch(&x, lanes.address[i] + 4 * k, 4, lanes.outside);
      w.row(c.dst + k)[i] = x;
    }
  }
}

template <u32 N>
void load(Wave& w, const Code& c) {
  Span64 lanes;
  Reach reach;
  if (!vector_addresses(w, c, 4 * N, Access::load, lanes, reach)) return;
  count_traffic(w, c, 4 * N, Access::load, lanes, reach);
  if (c.inst->lds) return to_lds<N>(w, c, lanes);
  if (reach.is_partial) {
    const Span64 none{};
    finish_load(w, c, N, [](Wave&, const Code&, const Span64&) {}, none, true);
    if (w.check)
      for (u32 d = 0; d < N; ++d)
        for (u64& plane : w.vund[c.dst + d].b) plane &= ~(lanes.mask | lanes.zero);
    return partial_load(w, c, N, lanes, reach);
  }
  finish_load(w, c, N, load_dwords<N>, lanes, false);
}

template <class T, Part P>
void load_part(Wave& w, const Code& c) {
  Span64 lanes;
  Reach reach;
  if (!vector_addresses(w, c, sizeof(T), Access::load, lanes, reach)) return;
  count_traffic(w, c, sizeof(T), Access::load, lanes, reach);
  if (c.inst->lds) return fatal(w, c, "unimplemented", "load of less than a dword to LDS");
  finish_load(w, c, 1, load_small<T, P>, lanes, false);
}

template <u32 N>
void lds_load(Wave& w, const Code& c) {
  Span64 lanes;
  Reach reach;
  if (!vector_addresses(w, c, 4 * N, Access::load, lanes, reach)) return;
  count_traffic(w, c, 4 * N, Access::load, lanes, reach);
  to_lds<N>(w, c, lanes);
}

// ---- stores
template <u32 N>
void store(Wave& w, const Code& c) {
  Span64 lanes;
  Reach reach;
  if (!vector_addresses(w, c, 4 * N, Access::store, lanes, reach)) return;
  count_traffic(w, c, 4 * N, Access::store, lanes, reach);
  const u32* d = w.row(c.src[1].index);
  if (w.check) check_stored(w, c, c.src[1].index, N, 4, lanes.mask);
  note_store(w, c, N);
  w.stored_outside |= lanes.outside;
  if (N == 1 && lanes.contiguous && !lanes.outside) {
    std::memcpy(reinterpret_cast<void*>(lanes.address[0]), d, 256);
    return;
  }
  for (u64 left = lanes.mask; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    u32 x[N];
    for (u32 k = 0; k < N; ++k) x[k] = d[k * kLanes + i];
    put(lanes.address[i], x, reach.is_partial ? 4 * std::size_t{reach.partial[i]} : 4 * N, lanes.outside);
  }
}

template <class T, u32 Shift>
void store_part(Wave& w, const Code& c) {
  Span64 lanes;
  Reach reach;
  if (!vector_addresses(w, c, sizeof(T), Access::store, lanes, reach)) return;
  count_traffic(w, c, sizeof(T), Access::store, lanes, reach);
  const u32* d = w.row(c.src[1].index);
  if (w.check && !Shift) check_stored(w, c, c.src[1].index, 1, sizeof(T), lanes.mask);
  note_store(w, c, 1);
  w.stored_outside |= lanes.outside;
  for (u64 left = lanes.mask; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    const T x = static_cast<T>(d[i] >> Shift);
    put(lanes.address[i], &x, sizeof x, lanes.outside);
  }
}

void cache_op(Wave& w, const Code& c) {  // buffer_inv, buffer_wbl2: memory is coherent here; they count on vmcnt
  if (w.stored_outside) settle_outside(w);
  if (!w.check) return;
  Pending p;
  p.cls = Pending::vm;
  issue(w, c, std::move(p));
}

}  // namespace

void add_vmem(Table& t) {
  const std::string sizes[] = {"dword", "dwordx2", "dwordx3", "dwordx4"};
  const Handler loads[] = {load<1>, load<2>, load<3>, load<4>}, stores[] = {store<1>, store<2>, store<3>, store<4>};
  for (const std::string family : {"buffer", "global", "flat", "scratch"}) {
    for (int i = 0; i < 4; ++i) {
      t.add(family + "_load_" + sizes[i], loads[i]);
      t.add(family + "_store_" + sizes[i], stores[i]);
    }
    t.add(family + "_load_ubyte", load_part<u8, Part::whole>);
    t.add(family + "_load_sbyte", load_part<std::int8_t, Part::whole>);
    t.add(family + "_load_ushort", load_part<u16, Part::whole>);
    t.add(family + "_load_sshort", load_part<i16, Part::whole>);
    t.add(family + "_load_ubyte_d16", load_part<u8, Part::low>);
    t.add(family + "_load_ubyte_d16_hi", load_part<u8, Part::high>);
    t.add(family + "_load_sbyte_d16", load_part<std::int8_t, Part::low>);
    t.add(family + "_load_sbyte_d16_hi", load_part<std::int8_t, Part::high>);
    t.add(family + "_load_short_d16", load_part<u16, Part::low>);
    t.add(family + "_load_short_d16_hi", load_part<u16, Part::high>);
    t.add(family + "_store_byte", store_part<u8, 0>);
    t.add(family + "_store_short", store_part<u16, 0>);
    t.add(family + "_store_byte_d16_hi", store_part<u8, 16>);
    t.add(family + "_store_short_d16_hi", store_part<u16, 16>);
  }
  t.add("global_load_lds_dword", lds_load<1>);
  t.add("global_load_lds_dwordx3", lds_load<3>);
  t.add("global_load_lds_dwordx4", lds_load<4>);
  for (const char* name : {"buffer_inv", "buffer_wbl2", "buffer_wbinvl1", "buffer_wbinvl1_vol"}) t.add(name, cache_op);
}

}  // namespace flymono
