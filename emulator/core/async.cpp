#include "async.hpp"

#include <algorithm>
#include <atomic>

namespace flymono {
namespace {

void sample(Wave& w, Pending& p) {
  if (!p.load) return;
  p.load(w, w.grid->program->code[p.code], *p.lanes);
  p.load = nullptr;
  w.grid->spare.push_back(std::move(p.lanes));
  --w.deferred;
}

void release(Wave& w, Pending& p) {
  sample(w, p);
  if (p.lanes) w.grid->spare.push_back(std::move(p.lanes));
  for (u32 r = p.first; r < u32{p.first} + p.count; ++r)
    if (w.owner[r] == p.seq) {
      w.pend[r >> 6] &= ~(u64{1} << (r & 63));
      if (w.waiting) w.guarded[r >> 6] |= u64{1} << (r & 63);
    }
}

void settle(Wave& w) {
  u64 any = 0;
  for (u64 x : w.pend) any |= x;
  w.any_pend = any != 0;
}

void pop_vm(Wave& w) {
  release(w, w.vm.front());
  w.vm.pop_front();
}

void pop_lgkm(Wave& w, std::size_t at) {
  Pending& p = w.lgkm[at];
  release(w, p);
  w.lgkm_count -= p.weight;
  w.unordered -= p.cls == Pending::smem;
  w.lgkm.erase(w.lgkm.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

void settle_outside(Wave& w) {
  w.stored_outside = false;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool defer_load(Wave& w) {
  const Machine& m = *w.grid->machine;
  if (m.options.sampling == Sampling::late) return true;
  if (m.options.sampling == Sampling::early) return false;
  return w.grid->machine->random.next() & 1;
}

std::unique_ptr<Span64> keep_lanes(Wave& w, const Span64& lanes) {
  auto& spare = w.grid->spare;
  std::unique_ptr<Span64> kept;
  if (spare.empty()) {
    kept = std::make_unique<Span64>();
  } else {
    kept = std::move(spare.back());
    spare.pop_back();
  }
  kept->mask = lanes.mask;
  kept->zero = lanes.zero;
  kept->contiguous = lanes.contiguous;
  kept->lds_base = lanes.lds_base;
  if (lanes.contiguous)
    kept->address[0] = lanes.address[0];
  else
    std::memcpy(kept->address, lanes.address, sizeof lanes.address);
  return kept;
}

void issue(Wave& w, const Code& c, Pending p) {
  const bool vm = p.cls == Pending::vm;
  if (vm && w.vm.size() >= 63) {
    pop_vm(w);
    settle(w);
  } else if (!vm && !w.unordered && p.cls == Pending::ds && w.lgkm_count >= 15) {
    pop_lgkm(w, 0);
    settle(w);
  }
  p.code = c.index;
  p.seq = w.next_seq++;
  for (u32 r = p.first; r < u32{p.first} + p.count; ++r) {
    w.pend[r >> 6] |= u64{1} << (r & 63);
    w.owner[r] = p.seq;
  }
  w.any_pend |= p.count != 0;
  w.deferred += p.load != nullptr;
  if (vm) {
    w.vm.push_back(std::move(p));
  } else {
    w.lgkm_count += p.weight;
    w.unordered += p.cls == Pending::smem;
    w.lgkm.push_back(std::move(p));
  }
}

void wait_vm(Wave& w, u32 left) {
  if (w.vm.size() <= left) return;
  while (w.vm.size() > left) pop_vm(w);
  settle(w);
}

void wait_lgkm(Wave& w, u32 left) {
  if (w.lgkm_count <= left) return;
  if (left == 0) {
    while (!w.lgkm.empty()) pop_lgkm(w, 0);
  } else if (!w.unordered) {
    while (w.lgkm_count > left) pop_lgkm(w, 0);
  }
  settle(w);
}

void sample_all(Wave& w) {
  if (!w.deferred) return;
  for (Pending& p : w.vm) sample(w, p);
}

void touch_pending(Wave& w, const Code& c) {
  for (int word = 0; word < 10; ++word) {
    u64 hit;
    while ((hit = c.uses[word] & w.pend[word]) != 0) {
      const u32 reg = static_cast<u32>(word * 64 + std::countr_zero(hit));
      auto owns = [&](const Pending& p) { return p.seq == w.owner[reg]; };
      const auto vm = std::find_if(w.vm.begin(), w.vm.end(), owns);
      const auto lgkm = vm == w.vm.end() ? std::find_if(w.lgkm.begin(), w.lgkm.end(), owns) : w.lgkm.end();
      const Pending& p = vm != w.vm.end() ? *vm : *lgkm;
      const bool same_class = (c.load_class == 1 && p.cls == Pending::vm) || (c.load_class == 2 && p.cls == Pending::ds);
      bool read = !same_class;
      for (int k = 0; k < c.vranges && same_class; ++k)
        read |= reg >= c.vsrc[k].first && reg < u32{c.vsrc[k].first} + c.vsrc[k].count;
      if (!read) {  // in-order return: the younger load of the same class ends up in the register
        if (w.deferred) sample_all(w);
        w.pend[word] &= ~(u64{1} << (reg & 63));
        continue;
      }
      const std::string name = reg < 512 ? "v" + std::to_string(reg) : "s" + std::to_string(reg - 512);
      const char* counter = p.cls == Pending::vm ? "vmcnt" : "lgkmcnt";
      report(w, c, "missing-wait", name + " is used while the load that writes it is outstanding (no s_waitcnt " + counter +
             " retires it before)", -1, w.grid->program->code[p.code].inst->pc);
      if (vm != w.vm.end()) {
        const u32 seq = p.seq;
        while (!w.vm.empty() && w.vm.front().seq <= seq) pop_vm(w);
      } else {
        pop_lgkm(w, static_cast<std::size_t>(lgkm - w.lgkm.begin()));
      }
      settle(w);
    }
  }
}

}  // namespace flymono
