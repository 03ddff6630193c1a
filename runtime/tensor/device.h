// Device: where a rank's state and activations are. Memory that the host does not look into,
// streams whose tasks work there, and copies from and to the host, which are work on a stream too.
// There is the host device, whose memory is the process's own; a strict one keeps that shut while
// none of its streams' tasks runs, and so proves for every other device that the host never looks
// in.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "runtime/tensor/stream.h"

namespace trireme::tensor {

// An address of a device's memory. Only what runs there, inside a task of one of its streams, may
// ask for the plain one.
class DevicePointer {
 public:
  DevicePointer() = default;
  explicit DevicePointer(std::byte* address) : address_(address) {}

  explicit operator bool() const { return address_ != nullptr; }
  DevicePointer operator+(size_t bytes) const { return DevicePointer(address_ + bytes); }
  friend bool operator==(const DevicePointer&, const DevicePointer&) = default;

  std::byte* get() const { return address_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(address_);
  }

 private:
  std::byte* address_ = nullptr;
};

// Zero-filled memory of a device, aligned to 2 MiB. The device outlives it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual DevicePointer base() const = 0;
  virtual size_t size_bytes() const = 0;
};

// Zero-filled pages of the host that somebody else has mapped, and keeps as long as `owner` lives.
struct HostPages {
  std::span<std::byte> bytes;  // whole pages, aligned to 2 MiB
  std::shared_ptr<const void> owner;
};

// Threads: any.
class Device {
 public:
  virtual ~Device() = default;
  // ResourceExhausted with the sizes when there is not so much. `prefault_threads`: HugeMemory.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes,
                                                                 int prefault_threads) = 0;
  // The host's pages as memory of this device, as of one that Allocate gives.
  virtual std::unique_ptr<DeviceMemory> Adopt(HostPages pages) = 0;
  // `while_waiting`: ThreadStreamOptions.
  virtual std::unique_ptr<Stream> MakeStream(size_t queue_capacity,
                                             std::function<void()> while_waiting) = 0;
  // A stream for copies beside the work of the others: on every device one that runs on its own.
  virtual std::unique_ptr<Stream> MakeTransferStream(size_t queue_capacity,
                                                     std::function<void()> while_waiting) = 0;
  // Work on `stream`, which is one of this device's; the host's memory must live until it has run.
  virtual void CopyToHost(DevicePointer from, std::span<std::byte> to, Stream& stream) = 0;
  virtual void CopyFromHost(std::span<const std::byte> from, DevicePointer to, Stream& stream) = 0;
};

struct HostDeviceOptions {
  bool asynchronous = false;  // each stream a thread
  bool strict = false;        // memory is shut while no task runs
};
std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options);

}  // namespace trireme::tensor
