// Order, events, bounds of streams; alignment, zeros and refusals of huge memory.
#include "runtime/tensor/stream.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/tensor/memory.h"

namespace trireme::tensor {
namespace {

TEST_CASE("tasks run in order on both kinds of stream") {
  for (const bool threaded : {false, true}) {
    auto stream = threaded ? MakeThreadStream({.queue_capacity = 4}) : MakeInlineStream();
    CHECK(stream->inline_execution() == !threaded);
    std::vector<int> seen;
    std::vector<int>* out = &seen;
    for (int i = 0; i < 100; ++i) stream->Issue(Task([=] { out->push_back(i); }));
    stream->Synchronize();
    REQUIRE(seen.size() == 100);
    for (int i = 0; i < 100; ++i) CHECK(seen[static_cast<size_t>(i)] == i);
  }
}

TEST_CASE("an event is ready once what was issued before it has run") {
  CHECK(Event{}.Ready());
  auto stream = MakeThreadStream();
  CHECK(stream->Record().Ready());
  std::atomic<bool> gate{false};
  std::atomic<bool>* open = &gate;
  const Event before = stream->Record();
  stream->Issue(Task([=] {
    while (!open->load()) std::this_thread::yield();
  }));
  const Event after = stream->Record();
  CHECK(before.Ready());
  CHECK_FALSE(after.Ready());
  gate.store(true);
  stream->Synchronize();
  CHECK(after.Ready());
}

// Who waits for more has come later, and must not keep the first from hearing.
TEST_CASE("each of several who wait for a stream is woken by his own task") {
  auto stream = MakeThreadStream();
  std::atomic<bool> begin{false}, first_came{false}, in_time{true};
  std::atomic<int> waiting{0};
  std::atomic<bool>* const opened = &begin;
  std::atomic<bool>* const came = &first_came;
  std::atomic<bool>* const came_in_time = &in_time;
  stream->Issue(Task([=] {
    while (!opened->load()) std::this_thread::yield();
  }));
  const Event first = stream->Record();
  stream->Issue(Task([=] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!came->load() && *came_in_time) {
      std::this_thread::yield();
      *came_in_time = std::chrono::steady_clock::now() < end;
    }
  }));
  const Event second = stream->Record();
  std::thread for_first([&] {
    ++waiting;
    stream->Await(first.sequence);
    first_came = true;
  });
  while (waiting < 1) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::thread for_second([&] {
    ++waiting;
    stream->Await(second.sequence);
  });
  while (waiting < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  begin = true;
  for_first.join();
  for_second.join();
  CHECK(in_time);
  CHECK(second.Ready());
}

TEST_CASE("a full queue holds the issuer, and the destructor runs what was issued") {
  std::atomic<int> ran{0};
  std::atomic<int> issued{0};
  std::atomic<bool> gate{false};
  {
    auto stream = MakeThreadStream({.queue_capacity = 2});
    std::thread issuer([&] {
      std::atomic<int>* counter = &ran;
      std::atomic<bool>* open = &gate;
      for (int i = 0; i < 6; ++i) {
        stream->Issue(Task([=] {
          while (!open->load()) std::this_thread::yield();
          ++*counter;
        }));
        ++issued;
      }
    });
    while (issued.load() < 2) std::this_thread::yield();
    // Time in which a queue without its bound would take more; however short, it is never wrong.
    for (int look = 0; look < 1000; ++look) std::this_thread::yield();
    CHECK(issued.load() == 2);
    gate.store(true);
    issuer.join();
  }
  CHECK(ran.load() == 6);
}

// The task goes on only once the thread that waits for it has done what it is there for.
TEST_CASE("a thread that waits for a stream drives others meanwhile") {
  for (const bool full : {false, true}) {
    INFO("on a full queue: " << full);
    std::atomic<int> driven{0};
    std::atomic<bool> seen{false};
    auto stream = MakeThreadStream({.queue_capacity = 1, .while_waiting = [&] { ++driven; }});
    stream->Issue(Task([count = &driven, out = &seen] {
      for (int look = 0; look < 20'000 && count->load() < 3; ++look) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      out->store(count->load() >= 3);
    }));
    if (full) {
      stream->Issue(Task([] {}));
      CHECK(seen.load());
    }
    stream->Synchronize();
    CHECK(seen.load());
  }
}

TEST_CASE("a stream that is done is not waited for") {
  int driven = 0;
  auto stream = MakeThreadStream({.queue_capacity = 4, .while_waiting = [&] { ++driven; }});
  stream->Synchronize();
  CHECK(driven == 0);
}

TEST_CASE("a wait with a limit tells whether the work is done") {
  for (const bool drives : {false, true}) {
    std::atomic<int> driven{0};
    std::atomic<bool> gate{false};
    auto stream = MakeThreadStream(
        {.queue_capacity = 4,
         .while_waiting = drives ? std::function<void()>([&] { ++driven; }) : nullptr});
    stream->Issue(Task([open = &gate] {
      while (!open->load()) std::this_thread::yield();
    }));
    const Event event = stream->Record();
    CHECK_FALSE(stream->AwaitFor(event.sequence, std::chrono::milliseconds(20)));
    CHECK((driven > 0) == drives);
    gate.store(true);
    CHECK(stream->AwaitFor(event.sequence, std::chrono::hours(1)));
    CHECK(event.Ready());
  }
  CHECK(MakeInlineStream()->AwaitFor(0, std::chrono::milliseconds(0)));
}

TEST_CASE("huge memory is aligned, zero, movable") {
  constexpr size_t kBytes = (size_t{5} << 20) + 123;
  for (const int threads : {0, 3}) {
    auto memory = HugeMemory::Map(kBytes, {.prefault_threads = threads});
    REQUIRE(memory.ok());
    CHECK(memory->size() == kBytes);
    CHECK(reinterpret_cast<uintptr_t>(memory->data()) % (size_t{2} << 20) == 0);
    size_t not_zero = 0;
    for (const std::byte b : memory->span()) not_zero += b != std::byte{0} ? 1 : 0;
    CHECK(not_zero == 0);
    std::byte* at = memory->data();
    HugeMemory moved = *std::move(memory);
    CHECK(moved.data() == at);
    moved.data()[kBytes - 1] = std::byte{7};
    moved = HugeMemory();
    CHECK(moved.size() == 0);
  }
  CHECK(HugeMemory::Map(0)->data() == nullptr);
}

TEST_CASE("memory that the system refuses is an error with the sizes") {
  for (const size_t bytes : {size_t{1} << 60, SIZE_MAX}) {
    const auto memory = HugeMemory::Map(bytes);
    REQUIRE(memory.status().code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(memory.status().message()),
               Catch::Contains(std::to_string(bytes)) && Catch::Contains("the machine has"));
  }
}

}  // namespace
}  // namespace trireme::tensor
