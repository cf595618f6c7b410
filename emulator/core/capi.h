/* The emulator core for programs that are not Python: one launch at a time over memory of this process.
 *
 * The functions are symbols of the Python module _core, which therefore has to be loaded in a process that has a
 * Python interpreter. They need no lock of it and may be called from any thread, several at a time.
 */
#ifndef FLYMONO_CAPI_H
#define FLYMONO_CAPI_H

#include <stddef.h>
#include <stdint.h>

#define FLYMONO_CAPI_VERSION 1
#define FLYMONO_CAPI __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint64_t address, bytes;
  const char* name;
} flymono_memory; /* that other processes or threads reach */

typedef struct {
  const char *arch, *kernel;
  const uint8_t* text; /* .text */
  uint64_t text_bytes, entry; /* entry: of the kernel, from the start of .text */
  const uint8_t* descriptor;  /* the kernel's 64 bytes */
  uint32_t workgroups, workitems;
  uint64_t kernarg;
  const flymono_memory* shared;
  uint64_t shared_count;
  const uint64_t* roster; /* addresses of the ranks' records, this one's first (roster.hpp) */
  uint64_t roster_count;
  uint64_t seed;
  int check;               /* hazards and uninitialised values are findings */
  int clock_on_standstill; /* as Emulator's on_standstill="clock" */
  int (*go_on)(void*);     /* asked now and then; 0 ends the launch */
  void* go_on_argument;
} flymono_launch;

/* FLYMONO_CAPI_VERSION of the core. */
FLYMONO_CAPI uint32_t flymono_capi_version(void);

/* Runs the launch to its end. Everything outside `shared` is memory of this process, and may be touched wherever it is
 * mapped: an access elsewhere ends the process. 0, or 1 with the reason or the findings in `message`. */
FLYMONO_CAPI int flymono_run(const flymono_launch* launch, char* message, size_t room);

#ifdef __cplusplus
}
#endif

#endif
