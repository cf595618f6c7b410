#include "device.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using flymono::RankRecord;

namespace {

constexpr char kMagic[8] = {'h', 'i', 'p', 'e', 'm', 'u', '0', '1'};
constexpr std::size_t kMessage = 1 << 16;

std::string from_environment(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value ? value : fallback;
}

using RunFn = int (*)(const flymono_launch*, char*, std::size_t);

// flymono_run of the Python module that HIPEMU_CORE names.
RunFn core() {
  static const RunFn run = [] {
    void* module = dlopen(Settings::get().core.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module) return std::fprintf(stderr, "hipemu: %s\n", dlerror()), RunFn{};
    const auto version = reinterpret_cast<std::uint32_t (*)()>(dlsym(module, "flymono_capi_version"));
    if (!version || version() != FLYMONO_CAPI_VERSION)
      return std::fprintf(stderr, "hipemu: %s is a core of another version\n", Settings::get().core.c_str()), RunFn{};
    return reinterpret_cast<RunFn>(dlsym(module, "flymono_run"));
  }();
  return run;
}

std::mutex devices_lock;
std::vector<std::unique_ptr<Device>>& devices() {
  static auto* all = new std::vector<std::unique_ptr<Device>>(static_cast<std::size_t>(Settings::get().devices));
  return *all;  // threads of the process may use them until its end
}

}  // namespace

const Settings& Settings::get() {
  static const Settings s = [] {
    Settings x;
    x.arch = from_environment("HIPEMU_ARCH", "gfx950");
    x.core = from_environment("HIPEMU_CORE", "");
    x.devices = std::atoi(from_environment("HIPEMU_DEVICES", "1").c_str());
    x.compute_units = std::atoi(from_environment("HIPEMU_COMPUTE_UNITS", "256").c_str());
    x.rank = std::atoi(from_environment("HIPEMU_RANK", "0").c_str());
    x.seed = std::strtoull(from_environment("HIPEMU_SEED", "0").c_str(), nullptr, 10);
    x.check = from_environment("HIPEMU_CHECK", "0") == "1";
    x.clock_on_standstill = from_environment("HIPEMU_STANDSTILL", "report") == "clock";
    x.mach = static_cast<std::uint32_t>(std::strtoul(from_environment("HIPEMU_MACH", "0").c_str(), nullptr, 0));
    return x;
  }();
  return s;
}

bool map_new(Memory& m, std::uint64_t bytes, const std::string& name) {
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC);
  struct stat found{};
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) || fstat(fd, &found)) return false;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return close(fd), false;
  m.address = static_cast<std::uint8_t*>(at);
  m.bytes = bytes;
  m.shared = true;
  m.name = name;
  m.place = {static_cast<std::uint32_t>(getpid()), static_cast<std::uint32_t>(fd), found.st_ino, bytes};
  return true;
}

bool map_place(Memory& m, const Place& place) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/fd/%u", place.process, place.descriptor);
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  struct stat found{};
  if (fd < 0) return false;
  const bool same = !fstat(fd, &found) && found.st_ino == place.inode && static_cast<std::uint64_t>(found.st_size) == place.bytes;
  void* at = same ? mmap(nullptr, place.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (at == MAP_FAILED) return false;
  m = {static_cast<std::uint8_t*>(at), place.bytes, true, false, false, place, "peer memory"};
  return true;
}

void unmap(Memory& m) {
  munmap(m.address, m.bytes);
  if (m.shared && m.own) close(static_cast<int>(m.place.descriptor));
}

Device* Device::get(int index) {
  std::lock_guard held(devices_lock);
  auto& all = devices();
  if (index < 0 || static_cast<std::size_t>(index) >= all.size()) return nullptr;
  auto& one = all[static_cast<std::size_t>(index)];
  if (!one) one = std::make_unique<Device>(index);
  return one.get();
}

Device* Device::of(const void* memory) {
  for (int i = 0; i < Settings::get().devices; ++i)
    if (Device* d = get(i); d) {
      std::lock_guard held(d->lock_);
      if (d->memory_.count(memory)) return d;
    }
  return nullptr;
}

Device::Device(int i) : index(i) {
  if (!map_new(record_, sizeof(RankRecord), "hipemu-rank")) std::abort();
  auto* record = reinterpret_cast<RankRecord*>(record_.address);
  record->pid = static_cast<std::uint32_t>(getpid());
  record->rank = static_cast<std::uint32_t>(Settings::get().rank + i);
  say(RankRecord::resting);
  worker_ = std::thread([this] { serve(); });
}

Device::~Device() {
  {
    std::lock_guard held(lock_);
    closing_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

void Device::say(RankRecord::State state) {
  __atomic_store_n(&reinterpret_cast<RankRecord*>(record_.address)->state, state, __ATOMIC_RELEASE);
}

hipError_t Device::allocate(void** out, std::size_t bytes, bool shared, bool host) {
  Memory m;
  bytes = (bytes + 4095) / 4096 * 4096;
  if (!bytes) return hipErrorInvalidValue;
  if (shared) {
    if (!map_new(m, bytes, "hipemu-uncached")) return hipErrorOutOfMemory;
    m.name = "uncached memory of rank " + std::to_string(Settings::get().rank + index);
  } else {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return hipErrorOutOfMemory;
    std::memset(at, 0xCB, bytes);  // a GPU gives memory that holds anything
    m.address = static_cast<std::uint8_t*>(at);
    m.bytes = bytes;
  }
  m.host = host;
  std::lock_guard held(lock_);
  *out = m.address;
  memory_[m.address] = std::move(m);
  return hipSuccess;
}

hipError_t Device::free(void* at, bool own) {
  if (hipError_t e = drain(); e != hipSuccess && e != hipErrorLaunchFailure) return e;
  std::lock_guard held(lock_);
  const auto found = memory_.find(at);
  if (found == memory_.end() || found->second.own != own) return hipErrorInvalidValue;
  unmap(found->second);
  memory_.erase(found);
  return hipSuccess;
}

hipError_t Device::export_to(Handle& out, const void* at) {
  std::lock_guard held(lock_);
  const auto found = memory_.find(at);
  if (found == memory_.end() || !found->second.shared || !found->second.own) return hipErrorInvalidValue;
  std::memcpy(out.magic, kMagic, sizeof kMagic);
  out.record = record_.place;
  out.memory = found->second.place;
  return hipSuccess;
}

hipError_t Device::open(void** out, const Handle& handle) {
  if (std::memcmp(handle.magic, kMagic, sizeof kMagic)) return hipErrorInvalidHandle;
  Memory m, record;
  std::lock_guard held(lock_);
  if (!peers_.count(handle.record.inode)) {
    if (!map_place(record, handle.record)) return hipErrorMapFailed;
    peers_[handle.record.inode] = record;
  }
  if (!map_place(m, handle.memory)) return hipErrorMapFailed;
  *out = m.address;
  m.name += " " + std::to_string(reinterpret_cast<RankRecord*>(peers_[handle.record.inode].address)->rank);
  memory_[m.address] = std::move(m);
  return hipSuccess;
}

hipError_t Device::reach(Device& peer) {
  std::lock_guard held(lock_);
  if (&peer == this) return hipErrorInvalidDevice;
  for (const Device* one : reached_)
    if (one == &peer) return hipErrorPeerAccessAlreadyEnabled;
  reached_.push_back(&peer);
  return hipSuccess;
}

// What others see of this device: its own uncached memory, and its record.
void Device::show(std::vector<flymono_memory>& shared, std::vector<std::uint64_t>& roster) {
  std::lock_guard held(lock_);
  roster.push_back(reinterpret_cast<std::uint64_t>(record_.address));
  for (const auto& [at, m] : memory_)
    if (m.shared && m.own) shared.push_back({reinterpret_cast<std::uint64_t>(at), m.bytes, m.name.c_str()});
}

hipError_t Device::put(Work work) {
  std::lock_guard held(lock_);
  if (!error_.empty()) return hipErrorLaunchFailure;
  queue_.push_back(std::move(work));
  ++queued_;
  say(RankRecord::working);
  changed_.notify_all();
  return hipSuccess;
}

hipError_t Device::drain() {
  wait_for(queued());
  return error().empty() ? hipSuccess : hipErrorLaunchFailure;
}

std::uint64_t Device::queued() {
  std::lock_guard held(lock_);
  return queued_;
}

std::uint64_t Device::done() {
  std::lock_guard held(lock_);
  return done_;
}

std::string Device::error() {
  std::lock_guard held(lock_);
  return error_;
}

void Device::wait_for(std::uint64_t works) {
  std::unique_lock held(lock_);
  changed_.wait(held, [&] { return done_ >= works; });
}

void Device::serve() {
  std::unique_lock held(lock_);
  for (;;) {
    changed_.wait(held, [this] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    const bool skipped = !error_.empty();
    held.unlock();
    if (!skipped) work();
    held.lock();
    ++done_;
    if (queue_.empty()) say(error_.empty() ? RankRecord::resting : RankRecord::left);
    changed_.notify_all();
  }
}

void Device::launch(const CodeObject& code, const std::string& name, unsigned grid, unsigned block, std::vector<std::uint8_t>& kernarg) {
  std::vector<flymono_memory> shared;
  std::vector<std::uint64_t> roster{reinterpret_cast<std::uint64_t>(record_.address)};
  std::vector<Device*> reached;
  {
    std::lock_guard held(lock_);
    for (const auto& [at, m] : memory_)
      if (m.shared) shared.push_back({reinterpret_cast<std::uint64_t>(at), m.bytes, m.name.c_str()});
    for (const auto& [inode, m] : peers_) roster.push_back(reinterpret_cast<std::uint64_t>(m.address));
    reached = reached_;
  }
  for (Device* peer : reached) peer->show(shared, roster);
  std::vector<std::string> names;  // two mappings of one name are two buffers
  names.reserve(shared.size());
  for (auto& m : shared) m.name = names.emplace_back(m.name + (" at " + std::to_string(m.address))).c_str();
  const Kernel& kernel = code.kernels.at(name);
  const Settings& s = Settings::get();
  flymono_launch l{};
  l.arch = s.arch.c_str();
  l.kernel = name.c_str();
  l.text = code.text.data();
  l.text_bytes = code.text.size();
  l.entry = kernel.entry;
  l.descriptor = kernel.descriptor.data();
  l.workgroups = grid;
  l.workitems = block;
  l.kernarg = reinterpret_cast<std::uint64_t>(kernarg.data());
  l.shared = shared.data();
  l.shared_count = shared.size();
  l.roster = roster.data();
  l.roster_count = roster.size();
  l.seed = s.seed;
  l.check = s.check;
  l.clock_on_standstill = s.clock_on_standstill;
  std::vector<char> message(kMessage);
  const RunFn run = core();
  if (run && !run(&l, message.data(), message.size())) return;
  std::lock_guard held(lock_);
  error_ = run ? message.data() : "no core: HIPEMU_CORE names none";
}
