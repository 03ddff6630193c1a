// `trireme files`: what a job has left for people in its run folder, listed or fetched. A fetched
// file appears whole or not at all.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "coordinator/cli/control.h"
#include "coordinator/cli/job_lookup.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/suggestion.h"
#include "coordinator/cli/text_table.h"
#include "coordinator/cli/transfer.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/report/plan_view.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using base::Text;

void PrintTable(const v1::Job& job, const v1::ListFilesResponse& list) {
  if (list.files().empty()) {
    std::printf("%s has left no files yet\n", NameOf(job).c_str());
    return;
  }
  TextTable table({"SIZE", "WRITTEN", "FILE"}, {0});
  for (const v1::FileInfo& file : list.files()) {
    table.Add({{report::ReadableBytes(file.bytes())},
               {LocalTime(file.written_unix_ns())},
               {Shown(file.path())}});
  }
  // Whole names, also where they are longer than a line: they are to be copied.
  std::fputs(table.Text(0).c_str(), stdout);
}

absl::StatusOr<v1::FileInfo> FindFile(const v1::Job& job, const v1::ListFilesResponse& list,
                                      const std::string& path) {
  std::vector<std::string> names;
  for (const v1::FileInfo& file : list.files()) {
    if (file.path() == path) return file;
    names.push_back(file.path());
  }
  const std::string nearest = Nearest(path, names);
  return absl::NotFoundError(Text(NameOf(job), " has no file ", path,
                                  nearest.empty() ? "" : Text("; did you mean ", nearest, "?"),
                                  " (trireme files ", job.id(), " lists them)"));
}

// Where a fetched file goes; empty: stdout.
absl::StatusOr<std::string> TargetOf(const FilesOptions& options) {
  if (options.out == "-") return std::string();
  std::error_code error;
  fs::path target = options.out;
  if (target.empty()) {
    target = fs::path(options.name).filename();
  } else if (fs::is_directory(target, error)) {
    target /= fs::path(options.name).filename();
  }
  if (fs::exists(target, error) && !options.force) {
    return absl::AlreadyExistsError(
        Text(target.string(), ": exists; give --force to replace it, or another name by --out"));
  }
  return target.string();
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// The bytes that there were when it was listed: a file may grow meanwhile. False: Ctrl-C.
absl::StatusOr<bool> Fetch(client::Client& client, const v1::Job& job, const v1::FileInfo& file,
                           std::FILE* out) {
  v1::ReadFileRequest request;
  request.set_job_id(job.id());
  request.set_path(file.path());
  request.set_most_bytes(file.bytes());
  if (file.bytes() == 0) return true;
  const auto stream = client.ReadFile(request);
  TransferLine line(isatty(fileno(out)) != 1);
  uint64_t done = 0;
  ASSIGN_OR_RETURN(
      const bool whole, TakeAll(*stream, [&](const v1::ReadFileResponse& part) {
        const std::string& data = part.data();
        done += data.size();
        line.Show(file.path(), done, file.bytes());
        if (std::fwrite(data.data(), 1, data.size(), out) == data.size()) {
          return absl::OkStatus();
        }
        return absl::DataLossError(Text("what was read cannot be written: ", std::strerror(errno)));
      }));
  if (whole && done < file.bytes()) {
    return absl::DataLossError(Text(file.path(), ": ", done, " of ", file.bytes(),
                                    " bytes came; it has been written anew meanwhile, try again"));
  }
  return whole;
}

// Beside its name, then renamed. False: Ctrl-C.
absl::StatusOr<bool> FetchTo(client::Client& client, const v1::Job& job, const v1::FileInfo& file,
                             const std::string& target) {
  const std::string partial = target + ".partial";
  const std::unique_ptr<std::FILE, CloseFile> out(std::fopen(partial.c_str(), "wbe"));
  if (out == nullptr) {
    return absl::InvalidArgumentError(Text(partial, ": cannot be written: ", std::strerror(errno)));
  }
  auto whole = Fetch(client, job, file, out.get());
  if (whole.ok() && *whole &&
      (std::fflush(out.get()) != 0 || std::rename(partial.c_str(), target.c_str()) != 0)) {
    whole = absl::DataLossError(Text(target, ": cannot be written: ", std::strerror(errno)));
  }
  if (!whole.ok() || !*whole) std::remove(partial.c_str());
  return whole;
}

int FetchOne(const ControlOptions& control, const FilesOptions& options, client::Client& client,
             const v1::Job& job, v1::FileInfo file) {
  const auto target = TargetOf(options);
  if (!target.ok()) return PrintError(target.status());
  const auto whole =
      target->empty() ? Fetch(client, job, file, stdout) : FetchTo(client, job, file, *target);
  if (!whole.ok()) return PrintCallError(whole.status());
  if (!*whole) return kLeft;
  if (target->empty()) return kOk;
  if (control.json) {
    file.set_path(*target);
    PrintJsonLine(file);
  } else {
    std::printf("%s\n", target->c_str());
  }
  return kOk;
}

}  // namespace

int RunFiles(const ControlOptions& control, const FilesOptions& options) {
  if (control.json && options.out == "-") {
    return PrintError(absl::InvalidArgumentError(
        "--json and --out -: the bytes of the file would stand among the JSON; give one of them"));
  }
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto job = FindJob(**client, options.job);
  if (!job.ok()) return PrintCallError(job.status());
  v1::ListFilesRequest request;
  request.set_job_id(job->id());
  const auto list = (*client)->Call(request);
  if (!list.ok()) return PrintCallError(list.status());
  if (options.name.empty()) {
    control.json ? PrintJsonLine(*list) : PrintTable(*job, *list);
    return kOk;
  }
  auto file = FindFile(*job, *list, options.name);
  if (!file.ok()) return PrintError(file.status());
  return FetchOne(control, options, **client, *job, *std::move(file));
}

}  // namespace trireme::cli
