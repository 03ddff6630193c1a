#include "coordinator/cli/manual_commands.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "coordinator/cli/control.h"
#include "coordinator/cli/exit_codes.h"
#include "coordinator/cli/job_lookup.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/run_folder.h"
#include "coordinator/manual/completion.h"
#include "coordinator/manual/man_page.h"
#include "coordinator/manual/markdown.h"
#include "coordinator/manual/shell_scripts.h"
#include "runtime/base/text.h"

namespace trireme::cli {
namespace {

using manual::Candidate;

// A Tab that takes longer annoys more than it helps.
constexpr double kAskSeconds = 1;
constexpr uint32_t kMostJobs = 200;

constexpr const char* kIntroduction =
    R"(# The command line
What `trireme` takes, word by word: written by `trireme man --markdown` (the target `cli_doc`),
checked by the test `cli.doc`. The same is in the manual pages (`man trireme-submit`) and behind
`--help`; what it is good for is in [operations.md](operations.md), with the exit codes.
)";

struct Given {
  std::string shell;
  std::vector<std::string> command;
  std::string folder;
  bool markdown = false;
};

std::string ValueOf(const manual::GivenOptions& given, const std::string& name) {
  const auto found = given.find(name);
  return found == given.end() ? "" : found->second;
}

absl::StatusOr<std::unique_ptr<client::Client>> ConnectAsGiven(const manual::GivenOptions& given) {
  ControlOptions control;
  control.timeout_seconds = kAskSeconds;
  control.connection.address = ValueOf(given, "--coordinator");
  control.connection.token_file = ValueOf(given, "--token-file");
  control.connection.ca_file = ValueOf(given, "--ca-file");
  control.connection.certificate_file = ValueOf(given, "--certificate");
  control.connection.key_file = ValueOf(given, "--key");
  return Connect(control);
}

// Numbers, then names, newest first.
std::vector<Candidate> Jobs(client::Client& client) {
  v1::ListRequest request;
  request.set_page_size(kMostJobs);
  const auto list = client.Call(request);
  if (!list.ok()) return {};
  std::vector<Candidate> numbers, names;
  std::set<std::string> seen;
  for (const v1::Job& job : list->jobs()) {
    const std::string state = StateWord(job.status().state());
    numbers.push_back({std::to_string(job.id()), Shown(job.name() + ", " + state)});
    if (!job.name().empty() && seen.insert(job.name()).second) {
      names.push_back({Shown(job.name()), base::Text("job ", job.id(), ", ", state)});
    }
  }
  numbers.insert(numbers.end(), names.begin(), names.end());
  return numbers;
}

std::vector<Candidate> Nodes(client::Client& client) {
  const auto cluster = client.Call(v1::GetClusterRequest());
  if (!cluster.ok()) return {};
  std::vector<Candidate> nodes;
  for (const v1::Node& node : cluster->nodes()) nodes.push_back({Shown(node.name()), ""});
  return nodes;
}

std::vector<Candidate> Files(client::Client& client, const std::string& name) {
  const auto job = FindJob(client, name);
  if (!job.ok()) return {};
  v1::ListFilesRequest request;
  request.set_job_id(job->id());
  const auto list = client.Call(request);
  if (!list.ok()) return {};
  std::vector<Candidate> files;
  for (const v1::FileInfo& file : list->files()) files.push_back({Shown(file.path()), ""});
  return files;
}

std::vector<Candidate> Suggest(const std::string& value, const manual::GivenOptions& given) {
  if (value == "STATE") {
    std::vector<Candidate> states;
    for (int state = v1::JOB_PENDING; state <= v1::JobState_MAX; ++state) {
      states.push_back({StateWord(static_cast<v1::JobState>(state)), ""});
    }
    return states;
  }
  if (value == "TYPE") return {{"f32", ""}, {"bf16", ""}, {"f16", ""}, {"f64", ""}};
  // Beside a job a name is that of one of its files.
  const std::string job = ValueOf(given, "JOB");
  if (value != "JOB" && value != "NODE" && (value != "NAME" || job.empty())) return {};
  const auto client = ConnectAsGiven(given);
  if (!client.ok()) return {};
  if (value == "NAME") return Files(**client, job);
  return value == "JOB" ? Jobs(**client) : Nodes(**client);
}

manual::ManFooter FooterOf() {
  manual::ManFooter footer{"trireme " TRIREME_VERSION, {}, {}};
  for (const ExitMeaning& one : ExitMeanings()) {
    footer.exit_codes.emplace_back(one.code, one.meaning);
  }
  return footer;
}

int WritePages(const manual::Command& root, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const manual::ManPage& page : manual::PagesOf(root, FooterOf())) {
    const absl::Status written = WriteFile(folder + "/" + page.name + ".1", page.text);
    if (!written.ok()) return PrintError(written);
  }
  return kOk;
}

int RunMan(const CLI::App& app, const Given& given) {
  const manual::Command root = manual::TreeOf(app);
  if (!given.folder.empty()) return WritePages(root, given.folder);
  std::string text;
  if (given.markdown) {
    text = manual::MarkdownOf(root, kIntroduction);
  } else {
    const manual::Command* command = manual::Find(root, given.command);
    if (command == nullptr) {
      return PrintError(absl::NotFoundError(
          base::Text("there is no command ", given.command[0], " (trireme --help lists them)")));
    }
    text = manual::PageOf(*command, FooterOf()).text;
  }
  std::fputs(text.c_str(), stdout);
  return kOk;
}

int RunCompletion(const std::string& shell) {
  std::fputs(manual::ScriptFor(shell, {"trireme", kCompleter}).c_str(), stdout);
  return kOk;
}

}  // namespace

void AddManualCommands(CLI::App& app, int* code) {
  const auto given = std::make_shared<Given>();
  CLI::App* completion =
      app.add_subcommand("completion", "lines that make a shell complete commands at Tab");
  completion->add_option("shell", given->shell, "which shell")
      ->required()
      ->type_name("SHELL")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(
      "Commands, options, files, jobs and nodes are completed.\n\n"
      "Examples:\n"
      "  source <(trireme completion bash)\n"
      "  trireme completion bash >~/.local/share/bash-completion/completions/trireme\n"
      "  trireme completion zsh >~/.zfunc/_trireme      # a folder of $fpath\n"
      "  trireme completion fish >~/.config/fish/completions/trireme.fish");
  completion->callback([=] { *code = RunCompletion(given->shell); });
  CLI::App* man = app.add_subcommand("man", "the manual page of a command, for man");
  man->add_option("command", given->command, "which; default: that of trireme")
      ->type_name("COMMAND")
      ->expected(0, 2);
  man->add_option("--all", given->folder, "write the pages of all commands into this folder")
      ->type_name("FOLDER");
  man->add_flag("--markdown", given->markdown, "all commands as one page of Markdown");
  man->footer(
      "Examples:\n"
      "  trireme man submit | man -l -\n"
      "  trireme man --all ~/.local/share/man/man1");
  man->callback([=, &app] { *code = RunMan(app, *given); });
}

int RunComplete(const CLI::App& app, const std::vector<std::string>& words) {
  const manual::Completion completion = manual::Complete(manual::TreeOf(app), words, Suggest);
  std::fputs(manual::ForShell(completion).c_str(), stdout);
  return kOk;
}

}  // namespace trireme::cli
