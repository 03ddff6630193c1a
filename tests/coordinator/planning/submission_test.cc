// Jobs of others: every fault at once, paths that stay where they may, needs known before a start.
#include "coordinator/planning/submission.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "tests/sanitizer.h"

namespace trireme::coordinator {
namespace {

namespace fs = std::filesystem;

class Place {
 public:
  Place() {
    REQUIRE(mkdtemp(path_.data()) != nullptr);
    fs::create_directories(path_ + "/data/inner");
    fs::create_directories(path_ + "/data-of-others");
    for (const char* name : {"/data/text.txt", "/data-of-others/text.txt"}) {
      std::ofstream out(path_ + name);
      for (int i = 0; i < 400; ++i) out << "all good things come to those who wait\n";
    }
    fs::create_symlink(path_ + "/data-of-others/text.txt", path_ + "/data/link.txt");
  }
  ~Place() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_ = "/tmp/trireme-submission-XXXXXX";
};

v1::JobSpec SmallJob(const std::string& text) {
  v1::JobSpec job;
  job.set_name("small");
  v1::ModelConfig& model = *job.mutable_model()->mutable_config();
  model.set_model_type("gpt2");
  model.set_hidden_size(16);
  model.set_num_hidden_layers(2);
  model.set_num_attention_heads(2);
  job.mutable_data()->add_text_files(text);
  job.mutable_data()->set_sequence_length(8);
  job.mutable_training()->set_steps(2);
  job.mutable_training()->set_global_batch_size(4);
  job.mutable_parallelism()->set_pipeline_parallel_size(2);
  return job;
}

SubmissionCheck CheckSubmission(v1::JobSpec job, const SubmissionRules& rules,
                                const CallerLeft& caller_left = nullptr) {
  SubmissionCheck check = CheckFiles(std::move(job), rules, caller_left);
  if (check.status.ok()) PlanChecked(check, rules, caller_left);
  return check;
}

}  // namespace

TEST_CASE("a good job is resolved and its needs are known") {
  const Place place;
  const SubmissionCheck check = CheckSubmission(SmallJob(place / "data/text.txt"), {});
  INFO(base::MessageOf(check.status));
  REQUIRE(check.status.ok());
  CHECK(check.checked.job.model().config().vocab_size() > 10);
  CHECK(check.checked.resources.ranks() == 2);
  CHECK(check.checked.resources.cpus_per_rank() == 1);
  uint64_t arena = 0;
  for (const auto& stage : check.checked.plan.stages()) {
    arena = std::max(arena, stage.arena_bytes());
  }
  CHECK(check.checked.resources.memory_bytes_per_rank() > arena);
  v1::JobSpec asks = SmallJob(place / "data/text.txt");
  asks.mutable_resources()->set_memory_mib_per_rank(3);
  asks.mutable_resources()->set_cpus_per_rank(5);
  const SubmissionCheck asked = CheckSubmission(asks, {});
  REQUIRE(asked.status.ok());
  CHECK(asked.checked.resources.memory_bytes_per_rank() == 3 << 20);
  // What the plan needs stays known beside what was asked for.
  CHECK(asked.checked.resources.planned_bytes_per_rank() ==
        check.checked.resources.memory_bytes_per_rank());
  CHECK(asked.checked.resources.cpus_per_rank() == 5);
}

TEST_CASE("a job that names no time limit gets the daemon's, if that has one") {
  const Place place;
  const auto limit = [&](double asked, double of_daemon) {
    v1::JobSpec job = SmallJob(place / "data/text.txt");
    if (asked > 0) job.mutable_resources()->set_time_limit_seconds(asked);
    SubmissionRules rules;
    rules.default_time_limit_seconds = of_daemon;
    const SubmissionCheck check = CheckSubmission(job, rules);
    REQUIRE(check.status.ok());
    return check.checked.job.resources().time_limit_seconds();
  };
  CHECK(limit(0, 0) == 0);
  CHECK(limit(0, 3600) == 3600);
  CHECK(limit(60, 3600) == 60);
  CHECK(limit(7200, 3600) == 7200);
}

TEST_CASE("the text, which each rank keeps, is counted with what a rank needs") {
  const Place place;
  const auto resources = [&] {
    v1::JobSpec job = SmallJob(place / "data/text.txt");
    job.mutable_model()->mutable_config()->set_vocab_size(100);
    const SubmissionCheck check = CheckSubmission(job, {});
    REQUIRE(check.status.ok());
    return check.checked.resources;
  };
  const v1::ResourceRequest little = resources();
  const auto before = fs::file_size(place / "data/text.txt");
  constexpr int64_t kMore = int64_t{tests::kThreadSanitizer ? 1 : 40} << 20;
  fs::resize_file(place / "data/text.txt", before + kMore);  // a new character, all of it
  const v1::ResourceRequest much = resources();
  CHECK(much.planned_bytes_per_rank() - little.planned_bytes_per_rank() == kMore);
  CHECK(much.memory_bytes_per_rank() - little.memory_bytes_per_rank() == kMore);
}

TEST_CASE("all faults of a job come at once with their fields") {
  v1::JobSpec job = SmallJob("relative.txt");
  job.clear_name();
  job.mutable_model()->set_config_path("/etc/passwd");
  job.mutable_training()->set_steps(0);
  const SubmissionCheck check = CheckSubmission(job, {});
  REQUIRE(absl::IsInvalidArgument(check.status));
  std::set<std::string> fields;
  for (const spec::Fault& fault : check.faults) fields.insert(fault.path);
  for (const char* field : {"name", "model.config_path", "data.text_files", "training.steps"}) {
    CAPTURE(field);
    CHECK(fields.contains(field));
  }
}

TEST_CASE("a text that its disk does not give is a fault of the job as it stands") {
  // A regular file that cannot be read: EIO. Unavailable would say that the daemon does not answer.
  const SubmissionCheck check = CheckSubmission(SmallJob("/proc/self/mem"), {});
  CHECK(check.status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(check.faults.size() == 1);
  CHECK(check.faults[0].path == "data.text_files");
  CHECK(check.faults[0].message.find("Input/output error") != std::string::npos);
}

TEST_CASE("a check tells which path it asks for next") {
  const Place place;
  const std::string one = place / "data/text.txt", other = place / "data-of-others/text.txt";
  for (const char* tokenizer : {"char", "byte"}) {
    CAPTURE(tokenizer);
    v1::JobSpec job = SmallJob(one);
    job.mutable_data()->add_text_files(other);
    job.mutable_data()->set_tokenizer(tokenizer);
    std::vector<std::string> asked;
    REQUIRE(CheckFiles(job, {}, nullptr, [&](const std::string& path) {
              if (asked.empty() || asked.back() != path) asked.push_back(path);
              return true;
            }).status.ok());
    // By their names, and to be read.
    CHECK(asked == std::vector<std::string>{one, other, one, other});
  }
}

TEST_CASE("a check that was given up asks for no other path, wherever it is") {
  const Place place;
  v1::JobSpec job = SmallJob(place / "data/text.txt");
  job.mutable_data()->add_text_files(place / "data/text.txt");
  job.mutable_data()->set_tokenizer("char");
  SubmissionRules rules;
  for (const bool real_paths : {false, true}) {
    CAPTURE(real_paths);
    if (real_paths) rules.allowed_folders = {place / "data"};
    size_t most = SIZE_MAX, looks = 0;
    const auto check = [&] {
      looks = 0;
      return CheckFiles(job, rules, nullptr, [&](const std::string&) { return ++looks < most; });
    };
    REQUIRE(check().status.ok());
    const size_t all = looks;
    CHECK(all > (real_paths ? 7 : 3));
    for (most = 1; most <= all; ++most) {
      CAPTURE(most);
      CHECK(absl::IsCancelled(check().status));
      CHECK(looks == most);
    }
  }
}

TEST_CASE("names that are no names are refused") {
  const Place place;
  for (const char* name : {"a/b", "..", "$(reboot)", "a b", "a;b", "", "a\nb"}) {
    CAPTURE(name);
    v1::JobSpec job = SmallJob(place / "data/text.txt");
    job.set_name(name);
    CHECK(absl::IsInvalidArgument(CheckSubmission(job, {}).status));
  }
}

TEST_CASE("paths stay below the folders that are allowed") {
  const Place place;
  const SubmissionRules rules{{place / "data"}};
  CHECK(CheckSubmission(SmallJob(place / "data/text.txt"), rules).status.ok());
  CHECK(CheckSubmission(SmallJob(place / "data/inner/../text.txt"), rules).status.ok());
  for (const char* name : {"data-of-others/text.txt", "data/../data-of-others/text.txt",
                           "data/link.txt", "data/inner/../../data-of-others/text.txt"}) {
    CAPTURE(name);
    const SubmissionCheck check = CheckSubmission(SmallJob(place / name), rules);
    REQUIRE(absl::IsInvalidArgument(check.status));
    CHECK(base::MessageOf(check.status).find("outside the folders") != std::string::npos);
  }
  // A link within them is named by where it leads, since it may lead elsewhere tomorrow.
  fs::create_symlink(place / "data/inner", place / "data/to_inner");
  fs::copy(place / "data/text.txt", place / "data/inner/text.txt");
  v1::JobSpec linked = SmallJob(place / "data/to_inner/text.txt");
  linked.mutable_checkpoint()->set_directory(place / "data/to_inner/checkpoints/of mine");
  const SubmissionCheck real = CheckSubmission(linked, rules);
  REQUIRE(real.status.ok());
  CHECK(real.checked.job.data().text_files(0) == place / "data/inner/text.txt");
  CHECK(real.checked.job.checkpoint().directory() == place / "data/inner/checkpoints/of mine");
  CHECK(CheckSubmission(linked, {}).checked.job.data().text_files(0) ==
        place / "data/to_inner/text.txt");
  v1::JobSpec writes = SmallJob(place / "data/text.txt");
  writes.mutable_checkpoint()->set_directory("/etc/cron.d");
  CHECK(absl::IsInvalidArgument(CheckSubmission(writes, rules).status));
}

TEST_CASE("what is the daemon's own is nobody else's") {
  const Place place;
  // Also below a folder that is allowed, and without one.
  for (const SubmissionRules& rules :
       {SubmissionRules{{place / ""}, {place / "data/inner", place / "data/token"}},
        SubmissionRules{{}, {place / "data/inner", place / "data/token"}}}) {
    CHECK(CheckSubmission(SmallJob(place / "data/text.txt"), rules).status.ok());
    for (const char* name : {"data/inner/jobs/1/checkpoints", "data/inner", "data/token",
                             "data-of-others/../data/inner/x"}) {
      CAPTURE(name);
      v1::JobSpec writes = SmallJob(place / "data/text.txt");
      writes.mutable_checkpoint()->set_directory(place / name);
      const SubmissionCheck check = CheckSubmission(writes, rules);
      REQUIRE(absl::IsInvalidArgument(check.status));
      CHECK(base::MessageOf(check.status).find("the daemon's own") != std::string::npos);
      CHECK(absl::IsInvalidArgument(CheckAllowed("folder", place / name, rules)));
    }
    CHECK(absl::IsInvalidArgument(CheckSubmission(SmallJob(place / "data/token"), rules).status));
  }
}

TEST_CASE("folders: they are looked at once, elsewhere, and no check waits for one that hangs") {
  const Place place;
  fs::create_directories(place / "real");
  fs::copy(place / "data/text.txt", place / "real/text.txt");
  fs::create_directory_symlink(place / "real", place / "link");
  SubmissionRules rules{{place / "link", place / "hangs"}, {place / "dead", place / "data/inner"}};
  std::vector<std::string> asked;
  std::vector<std::function<void()>> hang;
  const auto elsewhere = [&](const std::string& folder, std::function<void()> work) {
    asked.push_back(folder);
    if (folder.ends_with("hangs") || folder.ends_with("dead")) {
      hang.push_back(std::move(work));
    } else {
      work();
    }
    return absl::OkStatus();
  };
  std::vector<std::string> all = rules.own_paths;
  all.insert(all.end(), rules.allowed_folders.begin(), rules.allowed_folders.end());
  rules.real_folders = std::make_shared<RealFolders>(all, elsewhere);
  rules.real_folders->Wait(std::chrono::milliseconds(1));
  REQUIRE(asked.size() == 4);
  CHECK(CheckAllowed("f", place / "link/text.txt", rules).ok());
  CHECK(CheckAllowed("f", place / "real/text.txt", rules).ok());
  const std::string said = base::MessageOf(CheckAllowed("f", place / "hangs/text.txt", rules));
  CHECK(said.find("hangs cannot be looked at now") != std::string::npos);
  // One's own is one's own, whether it can be looked at or not.
  for (const char* own : {"dead/jobs/1", "data/inner/x"}) {
    CAPTURE(own);
    CHECK(base::MessageOf(CheckAllowed("f", place / own, rules)).find("the daemon's own") !=
          std::string::npos);
  }
  CHECK(asked.size() == 4);  // what hangs is not asked for twice
  // A name that leads elsewhere later on lets nobody in there.
  fs::remove(place / "link");
  fs::create_directory_symlink(place / "data-of-others", place / "link");
  CHECK_FALSE(CheckAllowed("f", place / "link/text.txt", rules).ok());
  CHECK(CheckAllowed("f", place / "real/text.txt", rules).ok());
  // What has come back is known, and of what was not there it is asked again.
  for (const auto& work : std::exchange(hang, {})) work();
  CHECK(CheckAllowed("f", place / "hangs/text.txt", rules).ok());
  fs::create_directories(place / "elsewhere");
  fs::create_directory_symlink(place / "elsewhere", place / "hangs");
  CHECK_FALSE(CheckAllowed("f", place / "elsewhere/text.txt", rules).ok());
  for (const auto& work : hang) work();
  CHECK(CheckAllowed("f", place / "elsewhere/text.txt", rules).ok());
}

// Of which nothing is on the disk.
static void MakeSparse(const std::string& path, off_t bytes) {
  std::ofstream(path).close();
  REQUIRE(truncate(path.c_str(), bytes) == 0);
}

TEST_CASE("bounds: text of more bytes than may be read is refused before any is") {
  const Place place;
  const std::string sparse = place / "data/sparse.txt";
  MakeSparse(sparse, off_t{1} << 42);
  SubmissionRules rules;
  rules.most_text_bytes = uint64_t{1} << 30;
  v1::JobSpec job = SmallJob(sparse);
  job.mutable_data()->set_tokenizer("char");
  const SubmissionCheck refused = CheckSubmission(job, rules);
  REQUIRE(absl::IsInvalidArgument(refused.status));
  CHECK(refused.faults.at(0).path == "data.text_files");
  const std::string said = base::MessageOf(refused.status);
  CHECK(said.find("4398046511104 bytes") != std::string::npos);
  CHECK(said.find("--max-text-bytes") != std::string::npos);
  // All files count together.
  rules.most_text_bytes = fs::file_size(place / "data/text.txt") * 3 / 2;
  job = SmallJob(place / "data/text.txt");
  job.mutable_data()->set_tokenizer("char");
  CHECK(CheckSubmission(job, rules).status.ok());
  job.mutable_data()->add_text_files(place / "data-of-others/text.txt");
  CHECK(absl::IsInvalidArgument(CheckSubmission(job, rules).status));
  // Bytes are what they are: nothing of them is read.
  job = SmallJob(sparse);
  job.mutable_data()->set_tokenizer("byte");
  const SubmissionCheck taken = CheckSubmission(job, rules);
  INFO(base::MessageOf(taken.status));
  REQUIRE(taken.status.ok());
  CHECK(taken.checked.job.model().config().vocab_size() == 256);
  MakeSparse(sparse, 0);
  CHECK(base::MessageOf(CheckSubmission(job, rules).status).find("is empty") != std::string::npos);
}

TEST_CASE("bounds: a check ends when its caller leaves or its time is up") {
  const Place place;
  const std::string sparse = place / "data/sparse.txt";
  MakeSparse(sparse, off_t{1} << 42);
  v1::JobSpec job = SmallJob(sparse);
  job.mutable_data()->set_tokenizer("char");
  int asked = 0;
  const SubmissionCheck left = CheckSubmission(job, {}, [&] { return ++asked == 3; });
  CHECK(absl::IsCancelled(left.status));
  CHECK(asked == 3);
  SubmissionRules rules;
  rules.most_time = std::chrono::milliseconds(1);
  const SubmissionCheck late = CheckSubmission(job, rules);
  REQUIRE(absl::IsDeadlineExceeded(late.status));
  CHECK(base::MessageOf(late.status).find("within the 0.001 s") != std::string::npos);
  // Likewise of a plan, stage by stage: no text is read here.
  job = SmallJob(place / "data/text.txt");
  job.mutable_data()->set_tokenizer("byte");
  job.mutable_model()->mutable_config()->set_num_hidden_layers(64);
  job.mutable_parallelism()->set_pipeline_parallel_size(64);
  asked = 0;
  CHECK(CheckSubmission(job, {}, [&] { return ++asked < 0; }).status.ok());
  CHECK(asked > 2 * 64);
  asked = 0;
  CHECK(absl::IsCancelled(CheckSubmission(job, {}, [&] { return ++asked == 40; }).status));
  CHECK(asked == 40);
}

TEST_CASE("bounds: a model too deep for its stages is refused before it is planned") {
  const Place place;
  v1::JobSpec job = SmallJob(place / "data/text.txt");
  job.mutable_parallelism()->set_pipeline_parallel_size(1);
  job.mutable_model()->mutable_config()->set_num_hidden_layers(10000);
  const SubmissionCheck refused = CheckSubmission(job, {});
  REQUIRE(absl::IsInvalidArgument(refused.status));
  CHECK(refused.faults.at(0).path == "model.config.num_hidden_layers");
}

}  // namespace trireme::coordinator
