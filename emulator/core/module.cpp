// The Python module _core: launches, single instructions, what is implemented. Plain dicts and tuples cross the border;
// emulator/device.py and emulator/execute.py give them types.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "decode.hpp"
#include "table.hpp"

namespace nb = nanobind;

namespace flymono {

void bind_decode(nb::module_& module);

namespace {

template <class T>
T get(const nb::dict& d, const char* key, T fallback) {
  return d.contains(key) ? nb::cast<T>(d[key]) : fallback;
}

template <class T>
T choice(const nb::dict& d, const char* key, std::initializer_list<std::pair<const char*, T>> options) {
  const std::string name = get<std::string>(d, key, options.begin()->first);
  std::string known;
  for (const auto& [n, value] : options) {
    if (name == n) return value;
    known += std::string(known.empty() ? "" : ", ") + n;
  }
  throw nb::value_error((std::string(key) + " is " + name + "; it must be one of " + known).c_str());
}

Options options_of(const std::string& arch, const nb::dict& d) {
  Options o;
  const auto on = arch_named(arch);
  if (!on) throw nb::value_error(("unknown arch " + arch).c_str());
  o.arch = *on;
  o.check = get<bool>(d, "check", true);
  o.seed = get<u64>(d, "seed", 0);
  o.order = choice<Order>(d, "order", {{"linear", Order::linear}, {"reversed", Order::reversed}, {"random", Order::random}, {"starve", Order::starve}});
  o.starved = get<u32>(d, "starved", 0);
  o.sampling = choice<Sampling>(d, "sampling", {{"late", Sampling::late}, {"early", Sampling::early}, {"random", Sampling::random}});
  o.mfma = choice<Mfma>(d, "mfma", {{"exact", Mfma::exact}, {"fma", Mfma::fma}, {"cdna3", Mfma::cdna3}, {"perturb", Mfma::perturb}});
  o.trans = choice<Trans>(d, "trans", {{"exact", Trans::exact}, {"ulp", Trans::ulp}});
  o.quantum = std::max<u32>(1, get<u32>(d, "quantum", o.quantum));
  o.xcds = get<u32>(d, "xcds", o.xcds);
  o.xcd_offset = get<u32>(d, "xcd_offset", 0);
  o.clock_on_standstill = choice<bool>(d, "on_standstill", {{"report", false}, {"clock", true}});
  o.idle_rounds = get<u32>(d, "idle_rounds", o.idle_rounds);
  o.max_findings = std::max<u32>(1, get<u32>(d, "max_findings", o.max_findings));
  o.max_instructions = get<u64>(d, "max_instructions", 0);
  o.lds_race = get<bool>(d, "lds_race", false);
  o.trace_guards = get<bool>(d, "trace_guards", false);
  o.roster = get<std::vector<u64>>(d, "roster", {});
  o.patience = get<double>(d, "patience", o.patience);
  return o;
}

std::vector<u8> bytes_of(const nb::bytes& b) {
  const auto* p = static_cast<const u8*>(b.data());
  return {p, p + b.size()};
}

nb::dict finding_dict(const Finding& f) {
  nb::dict d;
  d["kind"] = f.kind;
  d["message"] = f.message;
  d["kernel"] = f.kernel;
  d["buffer"] = f.buffer;
  d["region"] = f.region;
  d["text"] = f.text;
  d["other_text"] = f.other_text;
  d["workgroup"] = f.workgroup;
  d["wave"] = f.wave;
  d["lane"] = f.lane;
  d["pc"] = f.pc;
  d["other_pc"] = f.other_pc;
  d["count"] = f.count;
  return d;
}

nb::list findings_list(const Machine& m) {
  nb::list out;
  for (const Finding& f : m.findings) out.append(finding_dict(f));
  return out;
}

nb::dict traffic_dict(const Buffer& b) {
  static const char* kinds[] = {"load", "store", "atomic"};
  nb::dict d;
  for (std::size_t k = 0; k < 3; ++k) {
    nb::list requested, accesses;
    for (std::size_t s = 0; s < 8; ++s) requested.append(b.traffic.requested[k][s]), accesses.append(b.traffic.accesses[k][s]);
    d[kinds[k]] = nb::make_tuple(requested, accesses);
  }
  d["unique_loaded"] = b.unique(false);
  d["unique_stored"] = b.unique(true);
  d["unique"] = b.unique_touched();
  return d;
}

nb::dict grid_dict(const Grid& g) {
  nb::dict d;
  nb::list counts, spans, guards;
  for (std::size_t i = 0; i < g.program->insts.size(); ++i)
    if (g.counts[i]) {
      const Inst& in = g.program->insts[i];
      counts.append(nb::make_tuple(in.pc, std::string(mnemonic(in.op)), g.counts[i], g.program->code[i].stage));
    }
  const std::size_t n = g.stages.size() + 1;
  for (std::size_t wg = 0; wg < g.workgroups; ++wg)
    for (std::size_t s = 0; s < n; ++s)
      if (const Span& span = g.spans[wg * n + s]; span.first) spans.append(nb::make_tuple(wg, s, span.first - 1, span.last));
  for (std::size_t i = 0; i < g.guards.size(); ++i)
    if (g.guards[i]) guards.append(g.program->insts[i].pc);
  d["guards"] = guards;
  d["counts"] = counts;
  d["spans"] = spans;
  return d;
}

LaunchSpec spec_of(const nb::dict& d) {
  LaunchSpec s;
  s.kernel = get<std::string>(d, "kernel", "");
  s.rank = get<u32>(d, "rank", 0);
  s.workgroups = get<u32>(d, "workgroups", 1);
  s.workitems = get<u32>(d, "workitems", 64);
  s.lds_bytes = get<u32>(d, "lds_bytes", 0);
  s.vgprs = get<u32>(d, "vgprs", 256);
  s.accum_offset = get<u32>(d, "accum_offset", 256);
  s.kernarg = get<u64>(d, "kernarg", 0);
  s.dispatch_ptr = get<bool>(d, "dispatch_ptr", false);
  s.queue_ptr = get<bool>(d, "queue_ptr", false);
  s.kernarg_ptr = get<bool>(d, "kernarg_ptr", true);
  s.dispatch_id = get<bool>(d, "dispatch_id", false);
  s.private_size = get<bool>(d, "private_size", false);
  s.preload_dwords = get<u32>(d, "preload_dwords", 0);
  s.preload_offset = get<u32>(d, "preload_offset", 0);
  s.id_x = get<bool>(d, "id_x", true);
  s.id_y = get<bool>(d, "id_y", false);
  s.id_z = get<bool>(d, "id_z", false);
  s.info = get<bool>(d, "info", false);
  for (nb::handle h : get<nb::list>(d, "stages", nb::list())) {
    const auto t = nb::cast<nb::tuple>(h);
    s.stages.push_back({nb::cast<std::string>(t[0]), nb::cast<u32>(t[1]), nb::cast<u32>(t[2])});
  }
  return s;
}

void add_buffers(Machine& m, const nb::list& buffers) {
  for (nb::handle h : buffers) {
    const auto t = nb::cast<nb::tuple>(h);
    Buffer& b = m.memory.add(nb::cast<std::string>(t[0]), nb::cast<u64>(t[1]), nb::cast<u64>(t[2]), nb::cast<bool>(t[3]),
                             t.size() > 5 && nb::cast<bool>(t[5]));
    for (nb::handle r : nb::cast<nb::list>(t[4])) {
      const auto part = nb::cast<nb::tuple>(r);
      b.regions.push_back({nb::cast<std::string>(part[0]), nb::cast<u64>(part[1]), nb::cast<u64>(part[2])});
    }
  }
}

// Runs every launch (one a rank) over the same memory until all have ended.
nb::dict run(const std::string& arch, const nb::dict& options, const nb::list& buffers, const nb::list& launches, nb::object progress) {
  Machine m(options_of(arch, options));
  add_buffers(m, buffers);
  std::deque<Program> programs;
  for (nb::handle h : launches) {
    const auto d = nb::cast<nb::dict>(h);
    LaunchSpec s = spec_of(d);
    programs.push_back(load(m.options.arch, bytes_of(nb::cast<nb::bytes>(d["text"]))));
    Program& p = programs.back();
    prepare(p, m.options, s.accum_offset, s.vgprs, s.stages);
    const auto at = p.index_of.find(get<u32>(d, "entry", 0));
    if (at == p.index_of.end()) throw nb::value_error("the entry point is no instruction");
    s.entry = at->second;
    m.add_grid(p, s);
  }
  m.progress = [&](u64 ticks) {
    nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals()) throw nb::python_error();
    if (!progress.is_none()) progress(ticks);
  };
  {
    nb::gil_scoped_release free;
    m.run();
  }
  nb::dict out;
  nb::list grids;
  for (const auto& g : m.grids) grids.append(grid_dict(*g));
  nb::dict traffic;
  for (const auto& b : m.memory.buffers()) traffic[b->name.c_str()] = traffic_dict(*b);
  out["instructions"] = m.ticks;
  out["findings"] = findings_list(m);
  out["dropped_findings"] = m.dropped_findings;
  out["grids"] = grids;
  out["traffic"] = traffic;
  return out;
}

using Words = nb::ndarray<u32, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<u8, nb::c_contig, nb::device::cpu>;

// One wave over a list of instructions; the arrays are changed in place. `given` arrays say what is initialised.
nb::dict execute(const std::string& arch, const nb::bytes& code, const nb::dict& options, const nb::list& buffers, Words vgprs, Words agprs,
                 Words scalars, Bytes lds, Bytes given, u32 scc) {
  Machine m(options_of(arch, options));
  add_buffers(m, buffers);
  Program p = load(m.options.arch, bytes_of(code));
  for (std::size_t i = 0; i < p.insts.size(); ++i)
    if (!p.errors[i].empty()) throw nb::value_error(p.errors[i].c_str());
  Inst end;
  end.op = Op::s_endpgm;
  end.enc = Enc::sopp;
  end.pc = p.insts.empty() ? 0 : p.insts.back().pc + p.insts.back().size;
  p.insts.push_back(end);
  p.errors.emplace_back();
  const auto rows = static_cast<u32>(vgprs.shape(0)), extra = static_cast<u32>(agprs.shape(0));
  prepare(p, m.options, rows, rows + extra, {});
  LaunchSpec s;
  s.kernel = "execute";
  s.vgprs = rows + extra;
  s.accum_offset = rows;
  s.lds_bytes = static_cast<u32>(lds.size());
  s.kernarg_ptr = s.id_x = false;
  Grid& g = m.add_grid(p, s);
  Wave& w = g.waves[0];
  std::memcpy(w.v, vgprs.data(), std::size_t{rows} * 256);
  std::memcpy(w.v + std::size_t{rows} * kLanes, agprs.data(), std::size_t{extra} * 256);
  std::memcpy(w.s, scalars.data(), sizeof w.s);
  w.scc = scc;
  if (lds.size()) std::memcpy(w.wg->lds.data(), lds.data(), lds.size());
  if (m.options.check) {  // given: [rows + extra] vector rows, [128] scalars, SCC, LDS
    for (u32 r = 0; r < rows + extra; ++r) w.vund[r] = given.data()[r] ? ByteMask{} : ByteMask{{kAllLanes, kAllLanes, kAllLanes, kAllLanes}};
    for (u32 r = 0; r < kScalars; ++r) w.sund[r] = given.data()[rows + extra + r] ? 0 : ~0u;
    w.scc_und = !given.data()[rows + extra + kScalars];
    if (given.data()[rows + extra + kScalars + 1]) std::fill(w.wg->lds_undefined.begin(), w.wg->lds_undefined.end(), 0);
  }
  m.run();
  std::memcpy(vgprs.data(), w.v, std::size_t{rows} * 256);
  std::memcpy(agprs.data(), w.v + std::size_t{rows} * kLanes, std::size_t{extra} * 256);
  std::memcpy(scalars.data(), w.s, sizeof w.s);
  if (lds.size()) std::memcpy(lds.data(), w.wg->lds.data(), lds.size());
  nb::dict out;
  out["scc"] = w.scc;
  out["instructions"] = w.executed;
  out["findings"] = findings_list(m);
  return out;
}

nb::list implemented_ops() {
  nb::list out;
  for (std::size_t i = 0; i < static_cast<std::size_t>(Op::count_); ++i)
    if (table()[static_cast<Op>(i)].fn) out.append(std::string(mnemonic(static_cast<Op>(i))));
  return out;
}

}  // namespace
}  // namespace flymono

NB_MODULE(_core, module) {
  module.doc() = "The emulator core: decodes and executes AMDGPU code objects on host memory.";
  flymono::bind_decode(module);
  module.def("run", &flymono::run, nb::arg("arch"), nb::arg("options"), nb::arg("buffers"), nb::arg("launches"), nb::arg("progress").none() = nb::none(),
             "run launches over registered buffers; see emulator/device.py");
  module.def("execute", &flymono::execute, nb::arg("arch"), nb::arg("code"), nb::arg("options"), nb::arg("buffers"), nb::arg("vgprs"), nb::arg("agprs"),
             nb::arg("scalars"), nb::arg("lds"), nb::arg("given"), nb::arg("scc"), "run instructions on one wave; see emulator/execute.py");
  module.def("implemented_ops", &flymono::implemented_ops, "mnemonics (without encoding suffix) that can be executed");
}
