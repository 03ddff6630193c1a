// No allocation inside a step: malloc and its relatives are ours in this program, and count while
// the steps 3 to 10 run. Calls whose nearest caller beside the C and C++ libraries is a library of
// others (oneDNN, OpenMP, OpenBLAS) are left out; everything else is Trireme's.
#include <dlfcn.h>
#include <execinfo.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "runtime/recorder/flight_recorder.h"
#include "tests/runtime/engine/layout_run.h"

namespace {

constexpr int kKeptCalls = 64;
constexpr int kFrames = 32;

struct Call {
  void* frames[kFrames];
  int count = 0;
};

std::atomic<bool> counting{false};
std::atomic<int> calls{0};
Call kept[kKeptCalls];
thread_local bool inside = false;

void Count() {
  if (!counting.load(std::memory_order_relaxed) || inside) return;
  inside = true;  // backtrace may allocate
  const int index = calls.fetch_add(1);
  if (index < kKeptCalls) kept[index].count = backtrace(kept[index].frames, kFrames);
  inside = false;
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  Count();
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  Count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace trireme::engine {

namespace {

bool Holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

struct Tally {
  int ours = 0, libraries = 0;
  std::string where;  // of the first of ours: frames for addr2line
};

Tally Sort() {
  Tally tally;
  for (int index = 0; index < std::min(calls.load(), kKeptCalls); ++index) {
    bool ours = true;
    std::string where;
    for (int frame = 2; frame < kept[index].count; ++frame) {  // 0 and 1: Count and malloc
      Dl_info info{};
      if (dladdr(kept[index].frames[frame], &info) == 0 || info.dli_fname == nullptr) continue;
      const std::string_view file(info.dli_fname);
      const auto offset = static_cast<const char*>(kept[index].frames[frame]) -
                          static_cast<const char*>(info.dli_fbase);
      absl::StrAppend(&where, "\n  ", std::string(file), " +0x", absl::Hex(offset));
    }
    for (int frame = 2; frame < kept[index].count; ++frame) {
      Dl_info info{};
      if (dladdr(kept[index].frames[frame], &info) == 0 || info.dli_fname == nullptr) continue;
      const std::string_view file(info.dli_fname);
      if (Holds(file, "libstdc++") || Holds(file, "libc.so") || Holds(file, "ld-linux")) continue;
      ours = !Holds(file, "libdnnl") && !Holds(file, "libgomp") && !Holds(file, "libopenblas");
      break;
    }
    ++(ours ? tally.ours : tally.libraries);
    if (ours && tally.where.empty()) tally.where = where;
  }
  return tally;
}

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/trireme_allocation_XXXXXX";
    TRIREME_CHECK(mkdtemp(path) != nullptr);
    path_ = path;
    std::ofstream text(path_ + "/text");
    for (int line = 0; line < 100; ++line) text << "the oars rise and dip " << line << "\n";
  }
  Folder(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Case {
  Layout layout;
  TinyJobOptions options;
  int threads = 1;
  bool asynchronous = false;
};

// Steps 0 to 10 on real text with a flight recorder; allocations are counted from step 3 on.
Tally CountIn(const Case& each) {
  const Folder folder;
  data::DatasetOptions data;
  data.text_files = {folder.path() + "/text"};
  data.tokenizer = "byte";
  data.sequence_length = 5;
  const auto dataset = data::OpenDataset(data);
  REQUIRE(dataset.ok());
  v1::JobSpec job = JobFor(each.layout, each.options);
  job.mutable_model()->mutable_config()->set_vocab_size(256);
  const auto plan = plan::MakePlan(job, each.layout.ranks());
  REQUIRE(plan.ok());
  calls = 0;
  const auto statuses =
      comm::RunRanks(each.layout.ranks(), [&](comm::Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto recorder, recorder::FlightRecorder::Create(
                                            absl::StrCat(folder.path(), "/", fabric.rank()),
                                            fabric.rank(), fabric.size()));
        ASSIGN_OR_RETURN(
            auto engine,
            Engine::Create(*plan, fabric, **dataset,
                           {.kernels = &KernelsOf(job),
                            .recorder = recorder.get(),
                            .threads = each.threads,
                            .device = {.asynchronous = each.asynchronous, .strict = true}}));
        engine->InitializeState();
        for (uint64_t step = 0; step <= 10; ++step) {
          if (step == 3) {
            RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
            counting = true;
            RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
          }
          RETURN_IF_ERROR(engine->RunStep(step).status());
        }
        RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
        counting = false;
        return engine->agreement().AllAgree(true).status();
      });
  counting = false;
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  return Sort();
}

void Check(const std::vector<Case>& cases) {
  void* first[1];
  backtrace(first, 1);  // loads the unwinder
  for (const Case& each : cases) {
    const Tally tally = CountIn(each);
    INFO(each.options.family << " " << each.options.dtype << " " << each.layout.Name()
                             << " threads " << each.threads << (each.asynchronous ? " async" : "")
                             << ": " << calls.load() << " calls, " << tally.libraries
                             << " of the first " << kKeptCalls << " by libraries" << tally.where);
    CHECK(tally.ours == 0);
  }
}

}  // namespace

TEST_CASE("allocation: the hook sees one planted in a step") {
  calls = 0;
  counting = true;
  auto* planted = new std::vector<double>(100);
  counting = false;
  const Tally tally = Sort();
  delete planted;
  CHECK(tally.ours == 2);
  CHECK(tally.libraries == 0);
}

TEST_CASE("allocation: none in steps 3 to 10 with the reference kernels") {
  Check({{{}, {}},
         {{.pipeline = 4,
           .schedule = "gpipe",
           .offload_state = "file",
           .offload_activations = "host",
           .micro_batch = 1},
          {}},
         {{.micro_batch = 1}, {.family = "llama"}},
         {{.data = 2, .tensor = 2, .sequence_parallel = true, .zero = 1}, {.dropout = 0.1}},
         {{.tensor = 2, .pipeline = 2, .schedule = "interleaved"}, {}},
         {{.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1}, {.family = "llama"}}});
}

TEST_CASE("allocation: none in steps 3 to 10 with the fast kernels") {
  const TinyJobOptions gpt2{.dtype = "f32", .dropout = 0.1};
  const TinyJobOptions llama{.family = "llama", .dtype = "f32"};
  Check({{{}, gpt2},
         {{.micro_batch = 3}, gpt2, 2},
         {{}, llama},
         {{.data = 4, .zero = 1, .micro_batch = 1}, gpt2},
         {{.data = 2, .tensor = 2, .sequence_parallel = true, .zero = 1}, llama},
         {{.pipeline = 4, .schedule = "gpipe", .micro_batch = 1}, gpt2},
         {{.tensor = 2, .pipeline = 2, .schedule = "1f1b"}, gpt2}});
}

TEST_CASE("allocation: none in steps 3 to 10 with compression") {
  const TinyJobOptions coded{.dtype = "f32", .compression = "on"};
  Check({{{.data = 2}, coded},
         {{.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1}, coded},
         {{.tensor = 2, .pipeline = 2, .schedule = "interleaved"}, coded, 1, true}});
}

TEST_CASE("allocation: none in steps 3 to 10 on asynchronous streams") {
  const TinyJobOptions gpt2{.dtype = "f32", .dropout = 0.1};
  Check({{{}, gpt2, 1, true},
         {{.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1}, gpt2, 1, true}});
}

}  // namespace trireme::engine
