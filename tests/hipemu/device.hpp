// A device of the stand-in: memory, a queue with a thread of its own, the ranks that it knows.
//
// Invariants
//  - What is queued runs in order, whatever stream it came on; a call that queues returns at once.
//  - Uncached memory is a segment that other processes and devices can map, and external to the emulator; all other
//    memory of the process is the device's too.
//  - After a launch with findings the device is done for: later calls give hipErrorLaunchFailure.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../../emulator/core/capi.h"
#include "../../emulator/core/roster.hpp"
#include "code.hpp"
#include "hip_abi.h"

using Work = std::function<void()>;

struct Place {               // of a segment: an open file of some process
  std::uint32_t process = 0, descriptor = 0;
  std::uint64_t inode = 0, bytes = 0;
};

struct Memory {
  std::uint8_t* address = nullptr;
  std::uint64_t bytes = 0;
  bool shared = false, own = true, host = false;
  Place place;
  std::string name;
};

struct Handle {              // what hipIpcMemHandle_t holds
  char magic[8];
  Place record, memory;
};
static_assert(sizeof(Handle) <= sizeof(hipIpcMemHandle_t));

struct Settings {            // from the environment
  std::string arch, core;
  int devices, compute_units, rank;
  std::uint64_t seed;
  bool check, clock_on_standstill;
  std::uint32_t mach;
  static const Settings& get();
};

class Device {
 public:
  explicit Device(int index);
  ~Device();
  static Device* get(int index);         // null if there is no such device
  static Device* of(const void* memory);  // that holds this memory

  hipError_t allocate(void** out, std::size_t bytes, bool shared, bool host);
  hipError_t free(void* at, bool own);
  hipError_t export_to(Handle& out, const void* at);
  hipError_t open(void** out, const Handle& handle);
  hipError_t reach(Device& peer);        // launches here may touch that device's uncached memory

  hipError_t put(Work work);
  hipError_t drain();                    // until all that is queued has run
  std::uint64_t queued();                // works so far;
  std::uint64_t done();                  // of these have run
  void wait_for(std::uint64_t works);
  void launch(const CodeObject& code, const std::string& name, unsigned grid, unsigned block, std::vector<std::uint8_t>& kernarg);
  std::string error();

  const int index;

 private:
  void serve();
  void show(std::vector<flymono_memory>& shared, std::vector<std::uint64_t>& roster);
  void say(flymono::RankRecord::State state);
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  std::uint64_t queued_ = 0, done_ = 0;
  bool closing_ = false;
  std::string error_;
  std::map<const void*, Memory> memory_;
  Memory record_;
  std::map<std::uint64_t, Memory> peers_;  // records of other ranks by inode
  std::vector<Device*> reached_;           // of this process
  std::thread worker_;
};

// Maps new pages that others can map, or those of a place. False: errno tells.
bool map_new(Memory& m, std::uint64_t bytes, const std::string& name);
bool map_place(Memory& m, const Place& place);
void unmap(Memory& m);
