// The entry points: streams, events, graphs, modules and memory of the stand-in devices.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "device.hpp"

#define HIP extern "C" __attribute__((visibility("default"))) hipError_t

struct Module {
  CodeObject code;
};

struct Function {
  Module* module;
  std::string name;
};

struct Graph {
  std::vector<Work> works;
};

struct Stream {
  Device* device;
  Graph* capture = nullptr;
};

struct Event {
  Device* device = nullptr;
  std::uint64_t works = 0;   // how many the device had been given when it was recorded
};

namespace {

thread_local int current = 0;

Device* device_of(hipStream_t stream) { return stream ? stream->device : Device::get(current); }

// Onto the device's queue, or into the capture of the stream.
hipError_t put(hipStream_t stream, Work work) {
  if (stream && stream->capture) return stream->capture->works.push_back(std::move(work)), hipSuccess;
  return device_of(stream)->put(std::move(work));
}

// kernelParams is not offered: our packing is the one that is tested.
bool kernarg_of(void** extra, std::vector<std::uint8_t>& out) {
  const void* buffer = nullptr;
  const std::size_t* bytes = nullptr;
  for (int i = 0; extra && reinterpret_cast<std::uintptr_t>(extra[i]) != 3; i += 2) {
    if (reinterpret_cast<std::uintptr_t>(extra[i]) == 1) buffer = extra[i + 1];
    else if (reinterpret_cast<std::uintptr_t>(extra[i]) == 2) bytes = static_cast<const std::size_t*>(extra[i + 1]);
    else return false;
  }
  if (!buffer || !bytes) return false;
  const auto* p = static_cast<const std::uint8_t*>(buffer);
  out.assign(p, p + *bytes);
  out.resize(out.size() + 256);  // compilers widen scalar loads
  return true;
}

}  // namespace

// ---- devices
HIP hipGetDeviceCount(int* count) {
  *count = Settings::get().devices;
  return hipSuccess;
}

HIP hipSetDevice(int device) {
  if (!Device::get(device)) return hipErrorInvalidDevice;
  current = device;
  return hipSuccess;
}

HIP hipGetDevice(int* device) {
  *device = current;
  return hipSuccess;
}

HIP hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* out, int device) {
  if (!Device::get(device)) return hipErrorInvalidDevice;
  *out = {};
  const Settings& s = Settings::get();
  std::snprintf(out->name, sizeof out->name, "emulated %s", s.arch.c_str());
  std::snprintf(out->gcnArchName, sizeof out->gcnArchName, "%s:sramecc+:xnack-", s.arch.c_str());
  out->multiProcessorCount = s.compute_units;
  out->warpSize = 64;
  return hipSuccess;
}

HIP hipDeviceEnablePeerAccess(int peer, unsigned) {
  Device* d = Device::get(peer);
  return d ? Device::get(current)->reach(*d) : hipErrorInvalidDevice;
}

HIP hipDeviceSynchronize() { return Device::get(current)->drain(); }

HIP hipMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{1} << 38;
  return hipSuccess;
}

// ---- errors
extern "C" __attribute__((visibility("default"))) const char* hipGetErrorName(hipError_t error) {
  switch (error) {
    case hipSuccess: return "hipSuccess";
    case hipErrorInvalidValue: return "hipErrorInvalidValue";
    case hipErrorInvalidImage: return "hipErrorInvalidImage";
    case hipErrorNoBinaryForGpu: return "hipErrorNoBinaryForGpu";
    case hipErrorLaunchFailure: return "hipErrorLaunchFailure";
    case hipErrorStreamCaptureUnsupported: return "hipErrorStreamCaptureUnsupported";
    default: return "hipErrorUnknown";
  }
}

// A failed launch tells what the emulator found.
extern "C" __attribute__((visibility("default"))) const char* hipGetErrorString(hipError_t error) {
  static thread_local std::string text;
  text = error == hipErrorLaunchFailure ? Device::get(current)->error() : hipGetErrorName(error);
  return text.c_str();
}

// ---- memory
HIP hipMalloc(void** out, std::size_t bytes) { return Device::get(current)->allocate(out, bytes, false, false); }

HIP hipExtMallocWithFlags(void** out, std::size_t bytes, unsigned flags) {
  const bool shared = flags == hipDeviceMallocUncached || flags == hipDeviceMallocFinegrained;
  return shared || !flags ? Device::get(current)->allocate(out, bytes, shared, false) : hipErrorInvalidValue;
}

HIP hipHostMalloc(void** out, std::size_t bytes, unsigned) { return Device::get(current)->allocate(out, bytes, false, true); }

HIP hipHostGetDevicePointer(void** out, void* host, unsigned) {
  *out = host;
  return Device::of(host) ? hipSuccess : hipErrorInvalidValue;
}

HIP hipFree(void* at) {
  Device* d = Device::of(at);
  return !at ? hipSuccess : d ? d->free(at, true) : hipErrorInvalidValue;
}

HIP hipHostFree(void* at) { return hipFree(at); }

HIP hipMemset(void* at, int value, std::size_t bytes) {
  if (hipError_t e = Device::get(current)->drain(); e != hipSuccess) return e;
  std::memset(at, value, bytes);
  return hipSuccess;
}

HIP hipIpcGetMemHandle(hipIpcMemHandle_t* out, void* at) {
  Device* d = Device::of(at);
  Handle handle{};
  if (!d || d->export_to(handle, at) != hipSuccess) return hipErrorInvalidValue;
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &handle, sizeof handle);
  return hipSuccess;
}

HIP hipIpcOpenMemHandle(void** out, hipIpcMemHandle_t in, unsigned) {
  Handle handle{};
  std::memcpy(static_cast<void*>(&handle), &in, sizeof handle);
  return Device::get(current)->open(out, handle);
}

HIP hipIpcCloseMemHandle(void* at) {
  Device* d = Device::of(at);
  return d ? d->free(at, false) : hipErrorInvalidValue;
}

// ---- code
HIP hipModuleLoadData(hipModule_t* out, const void* image) {
  auto code = CodeObject::read(static_cast<const std::uint8_t*>(image));
  if (!code || code->text.empty()) return hipErrorInvalidImage;
  if (Settings::get().mach && code->mach != Settings::get().mach) return hipErrorNoBinaryForGpu;
  *out = new Module{std::move(*code)};
  return hipSuccess;
}

HIP hipModuleUnload(hipModule_t module) {
  for (int i = 0; i < Settings::get().devices; ++i) Device::get(i)->drain();
  delete module;
  return hipSuccess;
}

HIP hipModuleGetFunction(hipFunction_t* out, hipModule_t module, const char* name) {
  if (!module->code.kernels.count(name)) return hipErrorNotFound;
  *out = new Function{module, name};
  return hipSuccess;
}

HIP hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned lds,
                          hipStream_t stream, void** params, void** extra) {
  std::vector<std::uint8_t> kernarg;
  if (!f || params || gy != 1 || gz != 1 || by != 1 || bz != 1 || lds || !gx || !bx || bx > 1024 || !kernarg_of(extra, kernarg)) return hipErrorInvalidValue;
  Device* device = device_of(stream);
  return put(stream, [=]() mutable { device->launch(f->module->code, f->name, gx, bx, kernarg); });
}

// ---- streams
HIP hipStreamCreateWithFlags(hipStream_t* out, unsigned) {
  *out = new Stream{Device::get(current)};
  return hipSuccess;
}

HIP hipStreamDestroy(hipStream_t stream) {
  const hipError_t e = stream->device->drain();
  delete stream;
  return e;
}

HIP hipStreamSynchronize(hipStream_t stream) {
  if (stream && stream->capture) return hipErrorStreamCaptureUnsupported;
  return device_of(stream)->drain();
}

HIP hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* out) {
  *out = stream && stream->capture ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone;
  return hipSuccess;
}

HIP hipStreamBeginCapture(hipStream_t stream, int) {
  if (!stream || stream->capture) return hipErrorIllegalState;
  stream->capture = new Graph;
  return hipSuccess;
}

HIP hipStreamEndCapture(hipStream_t stream, hipGraph_t* out) {
  if (!stream || !stream->capture) return hipErrorIllegalState;
  *out = std::exchange(stream->capture, nullptr);
  return hipSuccess;
}

// ---- graphs
HIP hipGraphInstantiate(hipGraphExec_t* out, hipGraph_t graph, void*, char*, std::size_t) {
  *out = new Graph(*graph);
  return hipSuccess;
}

HIP hipGraphLaunch(hipGraphExec_t graph, hipStream_t stream) {
  for (const Work& work : graph->works)
    if (hipError_t e = put(stream, work); e != hipSuccess) return e;
  return hipSuccess;
}

HIP hipGraphDestroy(hipGraph_t graph) {
  delete graph;
  return hipSuccess;
}

HIP hipGraphExecDestroy(hipGraphExec_t graph) {
  for (int i = 0; i < Settings::get().devices; ++i) Device::get(i)->drain();
  delete graph;
  return hipSuccess;
}

// ---- events
HIP hipEventCreateWithFlags(hipEvent_t* out, unsigned) {
  *out = new Event;
  return hipSuccess;
}

HIP hipEventRecord(hipEvent_t event, hipStream_t stream) {
  event->device = device_of(stream);
  event->works = event->device->queued();
  return hipSuccess;
}

HIP hipEventQuery(hipEvent_t event) {
  return !event->device || event->device->done() >= event->works ? hipSuccess : hipErrorNotReady;
}

HIP hipEventSynchronize(hipEvent_t event) {
  if (event->device) event->device->wait_for(event->works);
  return !event->device || event->device->error().empty() ? hipSuccess : hipErrorLaunchFailure;
}

HIP hipEventDestroy(hipEvent_t event) {
  delete event;
  return hipSuccess;
}
