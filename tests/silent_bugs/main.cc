// The bench of silent bugs: plants every published kind, looks who sees it, has the healthy twin of
// each looked at too, and prints the rows of docs/silent_bugs.md.
//   silent_bugs               all of it, with 200 steps of loss of each
//   silent_bugs caught        without the losses
//   silent_bugs check PAGE    all of it, and what the page says otherwise
//   silent_bugs caught PAGE   the same without the losses
//   silent_bugs write PAGE    all of it, into the page
// Exit code 1: a bug that nobody sees, or that is seen wrongly, a false alarm, or a page that is
// not so.
#include <iostream>
#include <string>
#include <vector>

#include "tests/silent_bugs/curve.h"
#include "tests/silent_bugs/kinds.h"
#include "tests/silent_bugs/look.h"
#include "tests/silent_bugs/table.h"

namespace trireme::silent_bugs {

namespace {

struct Task {
  bool curves = true, writes = false;
  std::string page;
};

std::string Told(const std::vector<Seen>& seen) {
  std::string text;
  for (const Seen& each : seen) text += " " + each.by + " " + each.when + " " + each.names + ";";
  return text;
}

// Empty: the kind is seen as it should be.
std::string FaultOf(const Looked& planted) {
  if (planted.seen.empty()) return "nobody sees it";
  return planted.fault.empty() ? "" : "seen wrongly" + planted.fault;
}

// Empty: the twin is not seen.
std::string FaultOfHealthy(const Looked& healthy) {
  if (!healthy.seen.empty()) return "false alarm of the healthy twin:" + Told(healthy.seen);
  if (!healthy.fault.empty()) return "the healthy twin" + healthy.fault;
  return "";
}

int RunBench(const Task& task) {
  std::vector<Row> rows;
  Curves curves;
  bool failed = false;
  for (const Kind& kind : AllKinds()) {
    const bool plants = kind.needs.empty();
    const Looked planted = plants ? LookAtPlanted(kind) : Looked();
    rows.push_back(RowOf(kind, planted));
    if (plants) {
      const Looked healthy = LookAtHealthy(kind);
      rows.back().seen = FaultOf(planted).empty();
      rows.back().false_alarm = !healthy.seen.empty();
      for (const std::string& fault : {FaultOf(planted), FaultOfHealthy(healthy)}) {
        if (fault.empty()) continue;
        std::cerr << "FAILED: kind " << kind.number << ": " << fault << std::endl;
        failed = true;
      }
    }
    if (task.curves && plants) rows.back().curve = curves.Measure(kind);
    std::cout << rows.back().Line() << std::endl;
  }
  std::cout << Summary(rows) << std::endl;
  if (failed) return 1;
  if (task.writes) {
    const absl::Status written = Rewrite(task.page, rows);
    if (!written.ok()) std::cerr << written.message() << std::endl;
    return written.ok() ? 0 : 1;
  }
  const std::string differences = task.page.empty() ? "" : DifferencesOf(task.page, rows);
  if (!differences.empty()) {
    std::cerr << differences << "the target silent_bugs_doc writes the page" << std::endl;
  }
  return differences.empty() ? 0 : 1;
}

}  // namespace

}  // namespace trireme::silent_bugs

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  const bool known = word == "caught" || ((word == "check" || word == "write") && argc == 3);
  if (argc > 3 || (argc > 1 && !known)) {
    std::cerr << "expected nothing, caught [PAGE], check PAGE or write PAGE" << std::endl;
    return 2;
  }
  return trireme::silent_bugs::RunBench(
      {.curves = word != "caught", .writes = word == "write", .page = argc > 2 ? argv[2] : ""});
}
