// First cause before complaints: a rank's own failure, then a death by signal, then the silent
// rank, then exit codes.
#include "coordinator/launcher/diagnosis.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

#include "runtime/base/folder_names.h"
#include "runtime/base/utf8.h"
#include "runtime/recorder/position_text.h"

namespace trireme::launcher {
namespace {

using recorder::RankState;
using recorder::Recording;
using Recordings = std::map<int, Recording>;

constexpr std::streamoff kTailBytes = 1 << 16;
constexpr size_t kLineBytes = 400;  // of a line of evidence
constexpr size_t kGroupsShown = 8;
constexpr uintmax_t kFullBytes = 1 << 16;  // less than that, and no rank can even say so
constexpr size_t kRanksShown = 8;
constexpr size_t kFirstLines = 8;
constexpr size_t kRegexBytes = 1000;  // of a line: std::regex recurses over it

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Whether `text` holds one of `parts` as whole words. Paths do not count: /home/fernando is no NaN.
bool HoldsAny(const std::string& text, std::initializer_list<const char*> parts) {
  std::istringstream in(Lower(text));
  std::string words = " ";
  for (std::string word; in >> word;) {
    if (word.find('/') != std::string::npos) continue;
    for (char& c : word) {
      if (c != '-' && c != '_' && std::isalnum(static_cast<unsigned char>(c)) == 0) c = ' ';
    }
    words += word + " ";
  }
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) {
    return words.find(fmt::format(" {} ", part)) != std::string::npos;
  });
}

std::string SignalName(int number) {
  const char* name = strsignal(number);
  return fmt::format("signal {}, {}", number, name == nullptr ? "unknown" : name);
}

std::string Where(const Recording& recording) {
  if (recording.updated_ns == 0) return "before its first instruction";
  return fmt::format("at step {}, {}", recording.position.step,
                     recorder::DescribePosition(recording.position));
}

// The recording whose `key` is least among those that `admit` admits.
template <typename Admit, typename Key>
const Recording* Least(const Recordings& recordings, const Admit& admit, const Key& key) {
  const Recording* least = nullptr;
  for (const auto& [rank, recording] : recordings) {
    if (admit(recording) && (least == nullptr || key(recording) < key(*least))) {
      least = &recording;
    }
  }
  return least;
}

// `failed`: the recording whose failure the headline holds, or null.
void DescribeOthers(const Recordings& recordings, const Recording* failed, Diagnosis& diagnosis) {
  std::map<std::string, std::vector<int>> groups;
  for (const auto& [rank, recording] : recordings) {
    if (rank == diagnosis.rank) continue;
    std::string text = Where(recording);
    if (recording.state == RankState::kStopped) text = "had stopped in order";
    if (recording.state == RankState::kFailed && failed != nullptr && &recording != failed &&
        recording.failure == failed->failure) {
      text += ", failed in the same way";
    } else if (recording.state == RankState::kFailed) {
      text += ", failed: " + recording.failure.substr(0, recording.failure.find('\n'));
    }
    if (recording.state == RankState::kRunning && recording.wait.since_ns != 0) {
      text += ", " + recorder::DescribeWait(recording.wait);
    }
    groups[text].push_back(rank);
  }
  for (const auto& [text, ranks] : groups) {
    if (diagnosis.others.size() == kGroupsShown) {
      diagnosis.others.push_back(
          fmt::format("and {} more places; see the recordings", groups.size() - kGroupsShown));
      break;
    }
    std::string who = ranks.size() == 1 ? "rank" : "ranks";
    for (size_t i = 0; i < ranks.size() && i < kRanksShown; ++i) {
      who += fmt::format("{}{}", i == 0 ? " " : ", ", ranks[i]);
    }
    if (ranks.size() > kRanksShown) who += fmt::format(" and {} more", ranks.size() - kRanksShown);
    diagnosis.others.push_back(fmt::format("{}: {}", who, text));
  }
}

// `failed`: the recording whose failure goes with the headline, or null.
std::string NextAction(const Diagnosis& diagnosis, const Recording* failed) {
  const std::string failure = failed == nullptr ? "" : failed->failure;
  if (HoldsAny(failure, {"has not answered"})) {
    return "mend the disk or its mount; where a rank cannot be ended, stop the node's agent, "
           "switch "
           "the node off, and: trireme drain NODE --reason R --gone";
  }
  if (HoldsAny(failure, {"snapshots of"})) {
    return "make room in /dev/shm of that node (df, ls -l), or set snapshots.every_step: false; "
           "what runs have left there goes after the hours of --keep-snapshots-hours";
  }
  if (HoldsAny(failure, {"no space", "disk"})) {
    return "free disk space";
  }
  if (HoldsAny(failure, {"nonfinite", "non-finite", "nan", "inf"})) {
    return "lower optimizer.learning_rate or lengthen optimizer.warmup_steps, or set "
           "training.nonfinite_policy to skip";
  }
  if (HoldsAny(failure, {"out of memory", "bad_alloc", "cannot allocate"}) ||
      diagnosis.signal == SIGKILL) {
    return "if nobody killed it, the kernel ran out of memory (see dmesg): lower "
           "training.micro_batch_size or use fewer ranks per machine";
  }
  if (diagnosis.signal == SIGBUS) {
    return "a mapped file lost its space: look at df /dev/shm and the disk";
  }
  if (diagnosis.signal != 0) {
    return "look at the log of that rank; please report a crash with it";
  }
  if (failed != nullptr && failed->blame == recorder::Blame::kPeer) {
    return "if the ranks were only slow, raise runtime.deadline_seconds";
  }
  return "mend the cause named above";
}

const Recording* Find(const Recordings& recordings, int rank) {
  const auto found = recordings.find(rank);
  return found == recordings.end() ? nullptr : &found->second;
}

// Fills rank, step and headline.
void Blame(const Recording& recording, const std::string& what, Diagnosis& diagnosis) {
  diagnosis.rank = recording.rank;
  diagnosis.step = recording.position.step;
  diagnosis.headline = fmt::format("rank {} {} {}", recording.rank, what, Where(recording));
}

void BlameDead(const Recordings& recordings, int rank, const std::string& what,
               Diagnosis& diagnosis) {
  if (const Recording* dead = Find(recordings, rank)) return Blame(*dead, what, diagnosis);
  diagnosis.rank = rank;
  diagnosis.headline = fmt::format("rank {} {} before it was up", rank, what);
}

// The ranks that a failed wait names: "..., waiting for ranks 1,3".
std::set<int> AwaitedBy(const Recording& victim) {
  static const std::regex awaited(R"(waiting for ranks? (\d+(?:,\d+)*))");
  std::set<int> ranks;
  std::smatch match;
  if (!std::regex_search(victim.failure, match, awaited)) return ranks;
  std::istringstream in(match[1].str());
  for (std::string rank; std::getline(in, rank, ',');) ranks.insert(std::atoi(rank.c_str()));
  return ranks;
}

// By a rank that it names.
bool IsBlocked(const Recording& recording) {
  return recording.wait.since_ns != 0 && recording.wait.peer >= 0;
}

// The rank at the end of the chain of waits that begins with `victim`: those awaited that said
// nothing, or that gave up on others in turn, or were about to. Where the words name nobody, any
// that said nothing. How long others have stood still is no guide: whoever is blocked by the
// culprit has, too.
const Recording* SilentRank(const Recordings& recordings, const Recording& victim) {
  const auto silent = [](const Recording& r) {
    return r.state == RankState::kRunning || r.state == RankState::kStarting;
  };
  const auto updated = [](const Recording& r) { return r.updated_ns; };
  std::set<int> seen, ranks = AwaitedBy(victim);
  while (!ranks.empty()) {
    const auto among = [&](const Recording& r) {
      return silent(r) && ranks.count(r.rank) != 0 && !IsBlocked(r);
    };
    if (const Recording* found = Least(recordings, among, updated)) return found;
    std::set<int> next;
    for (const int rank : ranks) {
      const Recording* waiting = Find(recordings, rank);
      if (waiting == nullptr || !seen.insert(rank).second) continue;
      next.merge(AwaitedBy(*waiting));
      if (silent(*waiting)) next.insert(waiting->wait.peer);
    }
    ranks = std::move(next);
  }
  return Least(recordings, silent, updated);
}

// Of ranks that gave up on a peer the earliest, with the rank that said nothing, if any.
void BlameSilent(const Recordings& recordings, const Recording& victim, Diagnosis& diagnosis) {
  const Recording* silent = SilentRank(recordings, victim);
  if (silent != nullptr) {
    Blame(*silent, "stopped moving", diagnosis);
    diagnosis.headline += fmt::format("; rank {} gave up: {}", victim.rank, victim.failure);
  } else {
    Blame(victim, "failed", diagnosis);
    diagnosis.headline += ": " + victim.failure;
  }
}

// No rank has failed, and none was named.
void NameEnd(const Recordings& recordings, const LaunchResult& result, Diagnosis& diagnosis) {
  const int signal = result.exit_code > 128 ? result.exit_code - 128 : 0;
  if (recordings.empty()) {
    diagnosis.headline = fmt::format("no rank came up (exit code {})", result.exit_code);
  } else if (signal != 0 && !result.killed) {
    // The ranks end with their mpirun, so nobody else is there to speak.
    diagnosis.signal = signal;
    diagnosis.headline = fmt::format("{} or its guard died ({})",
                                     result.by_srun ? "srun" : "mpirun", SignalName(signal));
  } else {
    diagnosis.headline =
        fmt::format("the ranks ended with exit code {} and no rank says why", result.exit_code);
  }
}

// Fills rank, signal, step and headline; returns the recording whose failure goes with
// it, or null.
const Recording* NameCause(const Recordings& recordings, const MpirunWords& words,
                           const LaunchResult& result, Diagnosis& diagnosis) {
  const auto failed = [](const Recording& r) { return r.state == RankState::kFailed; };
  const auto failed_ns = [](const Recording& r) { return r.failed_ns; };
  // A failure of a rank's own, the earliest of them.
  const Recording* own = Least(
      recordings,
      [&](const Recording& r) { return failed(r) && r.blame == recorder::Blame::kItself; },
      failed_ns);
  if (own != nullptr) {
    Blame(*own, "failed", diagnosis);
    diagnosis.headline += ": " + own->failure;
    return own;
  }
  // A rank that a signal ended, unless it was our own kill.
  for (const auto& death : words.deaths) {
    if (death.signal == 0 || result.killed) continue;
    diagnosis.signal = death.signal;
    BlameDead(recordings, death.rank, fmt::format("died ({})", SignalName(death.signal)),
              diagnosis);
    return nullptr;
  }
  // A failure that blames a peer.
  if (const Recording* victim = Least(recordings, failed, failed_ns)) {
    BlameSilent(recordings, *victim, diagnosis);
    return victim;
  }
  for (const auto& death : words.deaths) {
    if (death.signal != 0) continue;
    BlameDead(recordings, death.rank, fmt::format("exited with code {}", death.exit_code),
              diagnosis);
    return nullptr;
  }
  NameEnd(recordings, result, diagnosis);
  return nullptr;
}

std::string Tail(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - kTailBytes));
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string Head(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kTailBytes, '\0');
  in.read(text.data(), kTailBytes);
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

// Without rulers and empty ones. ssh ends its lines as a terminal wants it.
std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of("- ") != std::string::npos) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> LastLines(const std::string& text, size_t count) {
  std::vector<std::string> lines = LinesOf(text);
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<long>(count));
  return lines;
}

// Whether a line of a rank's log ("DATE TIME error rank N: TEXT") says no more than `headline`.
bool Said(const std::string& headline, const std::string& line) {
  static const std::regex prefix(R"(^\S+ \S+ error rank \d+: )");
  const std::string text =
      line.size() > kRegexBytes
          ? line
          : std::regex_replace(line, prefix, "", std::regex_constants::format_first_only);
  return headline.find(text) != std::string::npos;
}

// mpirun does not always come to name the rank that ended the job; then the ranks' own last lines
// must do.
void AddLastWords(const std::string& run_folder, Diagnosis& diagnosis) {
  std::map<std::string, std::string> last;
  const std::string logs = run_folder + "/logs";
  base::VisitNames(logs, [&](const std::string& name) {
    if (last.size() == kGroupsShown || name.rfind("rank-", 0) != 0) return;
    const auto lines = LastLines(Tail(logs + "/" + name), 1);
    if (!lines.empty()) last[name] = lines[0];
  }).IgnoreError();
  for (const auto& [name, line] : last) diagnosis.evidence.push_back(name + ": " + line);
}

// Whether it is ssh that says why it did not get to a node.
bool OfSsh(const std::string& line) {
  static const std::regex complaint(
      R"(^ssh: |^(\S+: )?Permission denied( \(|, please)|^Host key verification failed|)"
      R"( host key is known for )");
  return line.size() <= kRegexBytes && std::regex_search(line, complaint);
}

// The node that it names; empty: none.
std::string NodeOfSsh(const std::string& line) {
  static const std::regex named(
      R"((?:resolve hostname |connect to host |key is known for )([\w.-]+))"
      R"(|^(?:\S+@)?([\w.-]+): Permission denied)");
  std::smatch match;
  if (!std::regex_search(line, match, named)) return "";
  return match[1].matched ? match[1].str() : match[2].str();
}

// No rank came up. mpirun goes on at length after what it was told first, and ends in what is "an
// internal programming error", so the beginning of its log is shown, or what ssh said in it.
void AddFirstWords(const std::string& mpirun_log, Diagnosis& diagnosis) {
  std::vector<std::string> lines = LinesOf(Head(mpirun_log));
  std::vector<std::string> complaints;
  std::string node;
  for (const std::string& line : lines) {
    if (!OfSsh(line)) continue;
    complaints.push_back(line);
    if (node.empty()) node = NodeOfSsh(line);
  }
  if (!complaints.empty()) {
    diagnosis.next_action = fmt::format(
        "check `ssh {} true` on the machine where mpirun is started, as the user who starts it: it "
        "must end without a question",
        node.empty() ? "NODE" : node);
    lines = std::move(complaints);
  }
  if (lines.size() > kFirstLines) lines.resize(kFirstLines);
  for (const std::string& line : lines) diagnosis.evidence.push_back("log: " + line);
}

}  // namespace

MpirunWords ParseMpirunWords(const std::string& text) {
  static const std::regex signalled(
      R"(mpirun noticed that process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+))");
  static const std::regex aborted(R"(MPI_ABORT was invoked on rank (\d+) )");
  static const std::regex named(R"(Process name: \[\[\d+,\d+\],(\d+)\])");
  static const std::regex exited(R"(Exit code: +(\d+))");
  const auto number = [](const std::smatch& match, size_t i) {
    return std::atoi(match[i].str().substr(0, 9).c_str());
  };
  MpirunWords words;
  std::istringstream in(text);
  int name = -1;
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (line.size() > kRegexBytes) continue;
    if (std::regex_search(line, match, signalled)) {
      words.deaths.push_back({number(match, 1), number(match, 2), 0, line});
    } else if (std::regex_search(line, match, aborted)) {
      words.deaths.push_back({number(match, 1), 0, 1, line});
    } else if (std::regex_search(line, match, named)) {
      name = number(match, 1);
    } else if (name >= 0 && std::regex_search(line, match, exited)) {
      const int code = number(match, 1);
      words.deaths.push_back(
          {name, 0, code, fmt::format("rank {} exited with code {}", name, code)});
      name = -1;
    }
  }
  return words;
}

std::optional<int> ExitCodeSaid(const std::string& run_folder) {
  const MpirunWords words = ParseMpirunWords(Tail(run_folder + "/logs/mpirun.log"));
  if (words.deaths.empty() || words.deaths[0].signal != 0) return std::nullopt;
  return words.deaths[0].exit_code;
}

Diagnosis FindCause(const Recordings& recordings, const MpirunWords& words,
                    const LaunchResult& result) {
  Diagnosis diagnosis;
  const Recording* failed = NameCause(recordings, words, result, diagnosis);
  DescribeOthers(recordings, failed, diagnosis);
  const bool own = failed != nullptr && failed->blame == recorder::Blame::kItself;
  diagnosis.own = own;
  for (const auto& death : words.deaths) {
    // MPI_ABORT is how a rank that has said why ends the others.
    if (own && death.signal == 0) continue;
    const bool named = death.line.rfind("mpirun", 0) == 0;
    diagnosis.evidence.push_back(named ? death.line : "mpirun: " + death.line);
  }
  diagnosis.next_action = NextAction(diagnosis, failed);
  return diagnosis;
}

Diagnosis Diagnose(const std::string& run_folder, const LaunchResult& result) {
  Recordings recordings;
  std::vector<std::string> unreadable;
  const std::string folder = run_folder + "/recorder";
  const absl::Status listed = base::VisitNames(folder, [&](const std::string& name) {
    if (std::filesystem::path(name).extension() != ".rec") return;
    const auto recording = recorder::ReadRecording(folder + "/" + name);
    if (recording.ok()) {
      recordings[recording->rank] = *recording;
    } else {
      unreadable.emplace_back(recording.status().message());
    }
  });
  if (!listed.ok() && !absl::IsNotFound(listed)) unreadable.emplace_back(listed.message());
  std::error_code error;
  const std::string mpirun_log = run_folder + "/logs/mpirun.log";
  const std::string said = Tail(mpirun_log);
  Diagnosis diagnosis = FindCause(recordings, ParseMpirunWords(said), result);
  const std::string rank_log = fmt::format("{}/logs/rank-{}.log", run_folder, diagnosis.rank);
  const bool has_log = diagnosis.rank >= 0 && std::filesystem::exists(rank_log, error);
  diagnosis.log_path = has_log ? rank_log : mpirun_log;
  const bool spoken = !diagnosis.evidence.empty() || diagnosis.rank >= 0;
  if (recordings.empty() && !spoken) {
    AddFirstWords(mpirun_log, diagnosis);
  } else if (has_log || !spoken) {
    for (const std::string& line : LastLines(has_log ? Tail(rank_log) : said, has_log ? 3 : 8)) {
      if (Said(diagnosis.headline, line)) continue;
      diagnosis.evidence.push_back("log: " + line);
    }
  }
  if (diagnosis.rank < 0) AddLastWords(run_folder, diagnosis);
  const auto space = std::filesystem::space(run_folder, error);
  if (!error && space.available < kFullBytes) {
    diagnosis.evidence.push_back(
        fmt::format("{} bytes are free in {}", space.available, run_folder));
    diagnosis.next_action = "free disk space";
  }
  for (const std::string& message : unreadable) diagnosis.evidence.push_back(message);
  // Libraries and the loader write to these logs in whatever bytes they like.
  for (std::string& line : diagnosis.evidence) line = base::ShowableLine(line, kLineBytes);
  return diagnosis;
}

}  // namespace trireme::launcher
