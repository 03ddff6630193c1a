#include "runtime/tensor/device.h"

#include <cstring>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/tensor/memory.h"
#include "runtime/tensor/memory_gate.h"

namespace trireme::tensor {

namespace {

class HostMemory final : public DeviceMemory {
 public:
  // `gate` may be null.
  HostMemory(HostPages pages, size_t size_bytes, MemoryGate* gate)
      : pages_(std::move(pages)), size_bytes_(size_bytes), gate_(gate) {
    if (gate_ != nullptr && !pages_.bytes.empty()) gate_->Add(pages_.bytes);
  }
  ~HostMemory() override {
    if (gate_ != nullptr && !pages_.bytes.empty()) gate_->Remove(pages_.bytes);
  }
  DevicePointer base() const override { return DevicePointer(pages_.bytes.data()); }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  const HostPages pages_;
  const size_t size_bytes_;
  MemoryGate* const gate_;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options)
      : asynchronous_(options.asynchronous), gate_(options.strict ? &shut_ : nullptr) {}

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes,
                                                         int prefault_threads) override {
    // Whole huge pages are shut and opened many times faster than the small ones they hold.
    constexpr size_t kHugePageBytes = size_t{2} << 20;
    const size_t mapped =
        gate_ == nullptr ? bytes : (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    ASSIGN_OR_RETURN(HugeMemory memory,
                     HugeMemory::Map(mapped, {.prefault_threads = prefault_threads}));
    auto owner = std::make_shared<const HugeMemory>(std::move(memory));
    const std::span<std::byte> pages = owner->pages();
    return std::make_unique<HostMemory>(HostPages{pages, std::move(owner)}, bytes, gate_);
  }
  std::unique_ptr<DeviceMemory> Adopt(HostPages pages) override {
    const size_t bytes = pages.bytes.size();
    return std::make_unique<HostMemory>(std::move(pages), bytes, gate_);
  }
  std::unique_ptr<Stream> MakeStream(size_t queue_capacity,
                                     std::function<void()> while_waiting) override {
    if (!asynchronous_) return MakeInlineStream(gate_);
    return MakeTransferStream(queue_capacity, std::move(while_waiting));
  }
  std::unique_ptr<Stream> MakeTransferStream(size_t queue_capacity,
                                             std::function<void()> while_waiting) override {
    return MakeThreadStream({.queue_capacity = queue_capacity,
                             .while_waiting = std::move(while_waiting),
                             .gate = gate_});
  }
  void CopyToHost(DevicePointer from, std::span<std::byte> to, Stream& stream) override {
    stream.Issue(Task([from, to] { std::memcpy(to.data(), from.get(), to.size()); }));
  }
  void CopyFromHost(std::span<const std::byte> from, DevicePointer to, Stream& stream) override {
    stream.Issue(Task([from, to] { std::memcpy(to.get(), from.data(), from.size()); }));
  }

 private:
  const bool asynchronous_;
  MemoryGate shut_;
  MemoryGate* const gate_;  // null: not strict
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace trireme::tensor
