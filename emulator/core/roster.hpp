// What is known of the ranks that run in other processes or threads, and waiting for them.
//
// Invariants
//  - A rank's record is written by its own process alone.
//  - A process that died is found by its pidfd, however it died and whoever has to wait for it.
#pragma once

#include <chrono>
#include <vector>

#include "base.hpp"

namespace flymono {

// What a rank says of itself, in memory that all ranks share.
struct RankRecord {
  enum State : u32 { absent, resting, working, left };  // working: a launch runs or is queued; left: closed
  u32 pid = 0, state = absent;
  u64 beats = 0;             // grows while a launch gets on; not while it only waits
  u32 rank = 0, reserved[11] = {};
};
static_assert(sizeof(RankRecord) == 64);

// The records of all ranks, as one of them sees them.
class Roster {
 public:
  enum class Peers : u8 { working, resting, gone };  // some of them works; none does; one died or left
  explicit Roster(const std::vector<u64>& addresses);  // this rank's record first
  ~Roster();
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;
  void beat() { __atomic_store_n(&own_->beats, ++beats_, __ATOMIC_RELAXED); }
  Peers look();
  u32 gone() const { return gone_; }          // after Peers::gone: which rank,
  u32 gone_pid() const { return gone_pid_; }  // and its process

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    RankRecord* record = nullptr;
    int handle = -1;         // pidfd
    u32 pid = 0;
    u64 beats = 0;
    Clock::time_point moved{};
  };
  bool alive(Seen& s, u32 pid);
  RankRecord* own_;
  std::vector<Seen> seen_;   // the others
  u32 gone_ = 0, gone_pid_ = 0;
  u64 beats_;
};

// Turns of a launch in which nothing happened but polls of external memory: gives the processor to others.
class OutsideWait {
 public:
  void begin();                        // may be called again
  void end() { turns_ = 0; }
  void pause();
  double due();                        // seconds since it last said so, or 0 while it is too early to look again
  double resting = 0;                  // seconds in which no rank worked
  u32 gone = 0;                        // looks that found a rank gone

 private:
  std::chrono::steady_clock::time_point looked_{};
  u64 turns_ = 0;
};

}  // namespace flymono
