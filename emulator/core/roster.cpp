#include "roster.hpp"

#include <algorithm>
#include <cerrno>
#include <thread>

#include <signal.h>
#include <unistd.h>
#if defined(__linux__)
#include <poll.h>
#include <sys/syscall.h>
#endif

namespace flymono {
namespace {

constexpr double kLook = 0.05;               // seconds between two looks at the other ranks
constexpr std::chrono::seconds kStale{10};   // a rank whose launch does not move for so long only waits itself

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

RankRecord* record_at(u64 address) { return reinterpret_cast<RankRecord*>(address); }

// A handle of a process that is not reused when the process dies; -1 where there is none.
int open_process(u32 pid) {
#if defined(SYS_pidfd_open)
  return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
#else
  (void)pid;
  return -1;
#endif
}

// Dead processes that nobody has waited for count as ended here.
bool ended(int handle) {
#if defined(__linux__)
  pollfd p{handle, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
#else
  (void)handle;
  return false;
#endif
}

}  // namespace

Roster::Roster(const std::vector<u64>& addresses) : own_(record_at(addresses.at(0))), beats_(own_->beats) {
  for (std::size_t i = 1; i < addresses.size(); ++i) seen_.push_back({.record = record_at(addresses[i])});
}

Roster::~Roster() {
  for (const Seen& s : seen_)
    if (s.handle >= 0) close(s.handle);
}

bool Roster::alive(Seen& s, u32 pid) {
  if (pid == static_cast<u32>(getpid())) return true;  // a thread of this process
  if (pid != s.pid) {
    if (s.handle >= 0) close(s.handle);
    s.pid = pid;
    s.handle = open_process(pid);
  }
  if (s.handle >= 0) return !ended(s.handle);
  return kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
}

Roster::Peers Roster::look() {
  const auto now = Clock::now();
  Peers found = Peers::resting;
  for (Seen& s : seen_) {
    const u32 state = __atomic_load_n(&s.record->state, __ATOMIC_ACQUIRE), pid = __atomic_load_n(&s.record->pid, __ATOMIC_ACQUIRE);
    if (state == RankRecord::absent) continue;
    if (state == RankRecord::left || !alive(s, pid)) {
      gone_ = s.record->rank;
      gone_pid_ = pid;
      return Peers::gone;
    }
    const u64 beats = __atomic_load_n(&s.record->beats, __ATOMIC_RELAXED);
    if (beats != s.beats || s.moved == Clock::time_point{}) s.beats = beats, s.moved = now;
    if (state == RankRecord::working && now - s.moved < kStale) found = Peers::working;
  }
  return found;
}

void OutsideWait::begin() {
  if (turns_++) return;
  looked_ = std::chrono::steady_clock::now();
  resting = 0;
  gone = 0;
}

void OutsideWait::pause() {
  if (turns_ < 16) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(std::min<u64>(50 * (turns_ - 15), 2000)));
}

double OutsideWait::due() {
  const auto now = std::chrono::steady_clock::now();
  const double passed = seconds(now - looked_);
  if (passed < kLook) return 0;
  looked_ = now;
  return passed;
}

}  // namespace flymono
