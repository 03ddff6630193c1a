// The host device: copies are work of a stream, and a strict one's memory is there only while some
// task of its streams runs.
#include "runtime/tensor/device.h"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/tensor/memory.h"

namespace trireme::tensor {
namespace {

// Whether the process may read the byte, found out by a system call, which fails where a load would
// end the process.
bool Readable(DevicePointer pointer) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const bool readable = write(ends[1], pointer.get(), 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

std::unique_ptr<DeviceMemory> MemoryOf(Device& device, size_t bytes) {
  auto memory = device.Allocate(bytes, 0);
  REQUIRE(memory.ok());
  REQUIRE((*memory)->size_bytes() == bytes);
  return *std::move(memory);
}

}  // namespace

TEST_CASE("device: copies go there and back in the order of their stream") {
  for (const bool asynchronous : {false, true}) {
    for (const bool strict : {false, true}) {
      const auto device = MakeHostDevice({.asynchronous = asynchronous, .strict = strict});
      const auto memory = MemoryOf(*device, 5000);
      const auto stream = device->MakeStream(8, {});
      std::vector<std::byte> there(4000), back(4000);
      for (size_t i = 0; i < there.size(); ++i) there[i] = static_cast<std::byte>(i * 7);
      device->CopyFromHost(there, memory->base() + 1000, *stream);
      stream->Issue(Task([at = memory->base() + 1000] { at.get()[3] = std::byte{99}; }));
      device->CopyToHost(memory->base() + 1000, back, *stream);
      stream->Synchronize();
      there[3] = std::byte{99};
      CHECK(back == there);
    }
  }
}

TEST_CASE(
    "device: pages of somebody else are shut like its own, and kept as long as it needs them") {
  auto mapped = HugeMemory::Map(8192);
  REQUIRE(mapped.ok());
  auto owner = std::make_shared<HugeMemory>(*std::move(mapped));
  const std::weak_ptr<HugeMemory> kept = owner;
  const auto device = MakeHostDevice({.strict = true});
  auto memory = device->Adopt({.bytes = owner->span(), .owner = owner});
  owner.reset();
  CHECK(memory->size_bytes() == 8192);
  CHECK(!Readable(memory->base()));
  const auto stream = device->MakeStream(8, {});
  bool inside = false;
  stream->Issue(Task([&] { inside = Readable(memory->base() + 8191); }));
  stream->Synchronize();
  CHECK(inside);
  CHECK(!kept.expired());
  memory.reset();
  CHECK(kept.expired());
}

TEST_CASE("device: a strict one is shut but while a task runs") {
  for (const bool asynchronous : {false, true}) {
    const auto device = MakeHostDevice({.asynchronous = asynchronous, .strict = true});
    const auto first = MemoryOf(*device, 10000);
    const auto stream = device->MakeStream(8, {});
    const auto other = device->MakeStream(8, {});
    const DevicePointer last = first->base() + 9999;
    CHECK(!Readable(first->base()));
    bool inside = false, aside = true, of_later = false;
    const auto later = MemoryOf(*device, 1);
    stream->Issue(Task([&] {
      inside = Readable(last);
      of_later = Readable(later->base());
    }));
    stream->Synchronize();
    CHECK(inside);
    CHECK(of_later);
    CHECK(!Readable(last));
    stream->IssueAside(Task([&] { aside = Readable(last); }));
    stream->Synchronize();
    CHECK(!aside);
    // It stays open for the one that still runs.
    if (!asynchronous) continue;
    std::atomic<bool> go_on = false;
    bool still = false;
    stream->Issue(Task([&] {
      while (!go_on) usleep(100);
      still = Readable(last);
    }));
    other->Issue(Task([&] { last.get()[0] = std::byte{1}; }));
    other->Synchronize();
    go_on = true;
    stream->Synchronize();
    CHECK(still);
    CHECK(!Readable(last));
  }
}

// A stream that waits for a transfer works on nothing.
TEST_CASE("device: a strict one stays shut while a stream waits for another's event") {
  const auto device = MakeHostDevice({.asynchronous = true, .strict = true});
  const auto memory = MemoryOf(*device, 5000);
  const auto first = device->MakeTransferStream(8, {});
  const auto second = device->MakeStream(8, {});
  std::atomic<bool> go_on = false, waits = false;
  first->IssueAside(Task([&] {
    while (!go_on) usleep(100);
  }));
  second->IssueAside(Task([&] { waits = true; }));
  second->WaitFor(first->Record());
  while (!waits) usleep(100);
  bool open = false;
  // However short this looks, it is never wrong.
  for (int look = 0; look < 100; ++look) {
    open = open || Readable(memory->base());
    usleep(100);
  }
  CHECK(!open);
  go_on = true;
  second->Synchronize();
}

TEST_CASE("device: one that is not strict leaves its memory open") {
  const auto device = MakeHostDevice({});
  CHECK(Readable(MemoryOf(*device, 100)->base()));
}

TEST_CASE("stream: work after another stream's event runs after it") {
  const auto device = MakeHostDevice({.asynchronous = true});
  const auto first = device->MakeStream(8, {});
  const auto second = device->MakeStream(8, {});
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> value = 0;
    int seen = -1;
    first->Issue(Task([&] {
      usleep(300);
      value = 1;
    }));
    second->WaitFor(first->Record());
    second->Issue(Task([&] { seen = value; }));
    second->Synchronize();
    REQUIRE(seen == 1);
  }
}

}  // namespace trireme::tensor
