// Diagnoses as messages.
#include "coordinator/keeper/attempt_end.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <string_view>
#include <system_error>

#include "coordinator/keeper/attempt_group.h"
#include "coordinator/launcher/diagnosis.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/utf8.h"
#include "runtime/recorder/save_log.h"

namespace trireme::keeper {
namespace {

constexpr std::string_view kStepPrefix = "step-";

std::optional<uint64_t> StepOf(const std::string& name) {
  if (name.compare(0, kStepPrefix.size(), kStepPrefix) != 0) return std::nullopt;
  uint64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(step) : std::nullopt;
}

std::string Evidence(const launcher::Diagnosis& diagnosis) {
  std::string text;
  const auto add = [&](const std::string& line) {
    text += fmt::format("{}{}", text.empty() ? "" : "\n", line);
  };
  for (const std::string& line : diagnosis.others) add(line);
  for (const std::string& line : diagnosis.evidence) add(line);
  if (!diagnosis.log_path.empty()) add("log: " + diagnosis.log_path);
  return text;
}

}  // namespace

v1::Failure DiagnosedFailure(const std::string& attempt_folder, const v1::LaunchSpec& launch,
                             const launcher::LaunchResult& result,
                             const std::optional<v1::RankReport>& seen_dead) {
  const launcher::Diagnosis diagnosis = launcher::Diagnose(attempt_folder, result);
  v1::Failure failure;
  failure.set_rank(diagnosis.rank);
  failure.set_exit_code(result.exit_code);
  failure.set_headline(diagnosis.headline);
  failure.set_evidence(Evidence(diagnosis));
  failure.set_next_action(diagnosis.next_action);
  if (diagnosis.rank < 0 && result.killed) {
    failure.set_headline(kKilledAsAsked);
    failure.set_next_action("");
  } else if (diagnosis.rank < 0 && seen_dead) {
    failure.set_rank(static_cast<int>(seen_dead->rank()));
    failure.set_headline(
        fmt::format("rank {} died {}", seen_dead->rank(),
                    seen_dead->position().empty()
                        ? "before its first instruction"
                        : fmt::format("at step {}, {}", seen_dead->step(), seen_dead->position())));
    failure.set_evidence(diagnosis.headline + "\n" + failure.evidence());
  }
  if (!result.killed) NameMemoryKill(attempt_folder, launch, diagnosis.own, failure);
  failure.set_own(diagnosis.own && !result.killed);
  return failure;
}

v1::Failure VanishedFailure(const std::string& attempt_folder, const v1::LaunchSpec& launch,
                            bool killed) {
  const launcher::LaunchResult result{base::kKilledCode, false, /*killed=*/true};
  const launcher::Diagnosis diagnosis = launcher::Diagnose(attempt_folder, result);
  v1::Failure failure;
  failure.set_rank(-1);
  failure.set_exit_code(base::kKilledCode);
  failure.set_headline(
      "the guard of the ranks vanished: somebody killed it, or the machine was "
      "started anew; what it left has been killed");
  failure.set_evidence(Evidence(diagnosis));
  failure.set_next_action(
      "if nobody killed it, look at dmesg: the kernel may have run out of memory");
  if (!killed) NameMemoryKill(attempt_folder, launch, diagnosis.own, failure);
  return failure;
}

v1::Failure UnreadFailure(const std::string& node, const std::string& why, bool killed) {
  v1::Failure failure;
  failure.set_rank(-1);
  failure.set_exit_code(base::kKilledCode);
  failure.set_headline(fmt::format(
      "{}; nothing of it runs on node {} any more, and what it ended with is not known: {}",
      killed ? kKilledAsAsked : "it has ended", node, why));
  failure.set_evidence("what its ranks have said lies in its run folder, which could not be read");
  failure.set_next_action(fmt::format(
      "mount the file system of the run folder anew on node {}; dmesg there says why it errs",
      node));
  return failure;
}

v1::Failure UnstartedFailure(uint32_t attempt, const std::string& why, int exit_code) {
  v1::Failure failure;
  failure.set_rank(-1);
  failure.set_exit_code(exit_code);
  failure.set_headline(fmt::format("attempt {} was not started: {}", attempt, why));
  failure.set_next_action("mend the cause named above");
  return failure;
}

SavedSoFar SavesOf(const v1::LaunchSpec& launch, const std::string& recorder_folder) {
  const std::string root = launch.job().checkpoint().has_directory()
                               ? launch.job().checkpoint().directory()
                               : launch.run_folder() + "/checkpoints";
  SavedSoFar saves;
  for (const std::string& line : recorder::ReadSaves(recorder::SaveLogPath(recorder_folder))) {
    // Whatever a rank has written there: a message with broken characters would not arrive at all.
    if (saves.fails.empty()) {
      saves.fails = base::ShowableLine(recorder::FailedSaveOf(line), recorder::kMostFailedBytes);
    }
    const std::optional<uint64_t> step = StepOf(line);
    // A name is noted first and given then; with it the manifest is there.
    if (!step || access((root + "/" + line + "/manifest.json").c_str(), F_OK) != 0) continue;
    saves.step = *step;
    break;
  }
  return saves;
}

}  // namespace trireme::keeper
