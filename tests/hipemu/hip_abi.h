// The part of HIP 7's C interface that the stand-in library offers, with the layouts and numbers of its headers.
#pragma once

#include <cstddef>
#include <cstdint>

enum hipError_t : int {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorInvalidDevice = 101,
  hipErrorInvalidImage = 200,
  hipErrorMapFailed = 205,
  hipErrorNoBinaryForGpu = 209,
  hipErrorInvalidHandle = 400,
  hipErrorNotFound = 500,
  hipErrorNotReady = 600,
  hipErrorPeerAccessAlreadyEnabled = 704,
  hipErrorLaunchFailure = 719,
  hipErrorStreamCaptureUnsupported = 900,
  hipErrorIllegalState = 401,
};

enum hipStreamCaptureStatus : int { hipStreamCaptureStatusNone = 0, hipStreamCaptureStatusActive = 1 };

constexpr unsigned hipDeviceMallocFinegrained = 1, hipDeviceMallocUncached = 3;

struct hipIpcMemHandle_t {
  char reserved[64];
};

struct hipDeviceProp_tR0600 {
  char name[256], uuid[16], luid[8];
  unsigned luidDeviceNodeMask;
  std::size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  std::size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  std::size_t totalConstMem;
  int major, minor;
  std::size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
  int textures_and_surfaces[40];
  std::size_t surfaceAlignment;
  int buses_and_caches[16];
  std::size_t sharedMemPerMultiprocessor;
  int features[12];
  std::size_t sharedMemPerBlockOptin;
  int paging[4];
  std::size_t reservedSharedMemPerBlock;
  int more_features[13], reserved[63], hipReserved[32];
  char gcnArchName[256];
  std::size_t maxSharedMemoryPerMultiProcessor;
  int clockInstructionRate;
  unsigned arch;
  unsigned *hdpMemFlushCntl, *hdpRegFlushCntl;
  int cooperative[4], isLargeBar, asicRevision;
};

using hipStream_t = struct Stream*;
using hipEvent_t = struct Event*;
using hipModule_t = struct Module*;
using hipFunction_t = struct Function*;
using hipGraph_t = struct Graph*;
using hipGraphExec_t = struct Graph*;
