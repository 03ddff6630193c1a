#include "tests/silent_bugs/look.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"
#include "runtime/model/model.h"
#include "runtime/plan/verifier.h"
#include "tests/silent_bugs/run.h"

namespace trireme::silent_bugs {

namespace {

// Against the norm of all, as in the parity suites.
constexpr double kLimit = 1e-12;
constexpr size_t kMostNamed = 3;

// The suites.
constexpr const char* kParity = "parity";
constexpr const char* kResume = "resume";
constexpr const char* kLedger = "ledger";

using Names = std::set<std::string>;

Names NamesOf(const Tensors& tensors) {
  Names names;
  for (const auto& [name, values] : tensors) names.insert(name);
  return names;
}

Names Differing(const Tensors& run, const Tensors& reference, double limit) {
  Names names;
  const auto over = engine::Differences(run, reference, engine::NormOf(reference), limit);
  for (const auto& [name, worst] : over) names.insert(name);
  return names;
}

// What is red, and whether it is what the bug spoils.
std::string Describe(const Kind& kind, const char* what, const Names& red, const Names& all,
                     std::string& fault) {
  std::string text;
  if (red.size() == all.size()) {
    text = absl::StrCat(what, " of all ", all.size());
  } else if (red.size() <= 2) {
    text = absl::StrCat(what, " of ", absl::StrJoin(red, " and "), " alone");
  } else {
    text = absl::StrCat(what, " of ", red.size(), " in ", all.size());
  }
  if (!kind.spoils) return text;
  Names expected;
  std::copy_if(all.begin(), all.end(), std::inserter(expected, expected.end()), kind.spoils);
  if (expected == red) return red.size() == all.size() ? text : text + ", those that it spoils";
  absl::StrAppend(&fault, "; red are ", absl::StrJoin(red, ", "), ", expected ",
                  absl::StrJoin(expected, ", "));
  return text;
}

std::string StepText(const Kind& kind, uint64_t step, uint64_t begin) {
  return kind.job.resumes ? absl::StrCat("step ", step - begin, " after it")
                          : absl::StrCat("step ", step);
}

// The first moment at which the numbers of a run differ from those of the reference.
void CompareNumbers(const Kind& kind, const Outcome& run, const Outcome& reference,
                    Looked& looked) {
  // A resume is exact to the bit on the same layout.
  const double limit = kind.job.resumes ? 0 : kLimit;
  const std::string by = kind.job.resumes ? kResume : kParity;
  const auto see = [&](const std::string& when, const std::string& names) {
    looked.seen.push_back({by, when, names});
  };
  if (kind.job.resumes) {
    const Names red = Differing(run.state, reference.state, limit);
    if (!red.empty()) {
      return see("before its first step",
                 Describe(kind, "state", red, NamesOf(reference.state), looked.fault));
    }
  }
  for (size_t index = 0; index < run.gradients.size(); ++index) {
    const size_t step = run.begin - reference.begin + index;
    const std::string when = StepText(kind, run.begin + index + 1, run.begin);
    const Tensors& expected = reference.gradients[step];
    const Names gradients = Differing(run.gradients[index], expected, limit);
    if (!gradients.empty()) {
      return see(when, Describe(kind, "gradients", gradients, NamesOf(expected), looked.fault));
    }
    const double norm = reference.norms[step];
    if (!(std::abs(run.norms[index] - norm) <= limit * norm)) {
      return see(when, "the norm of all gradients");
    }
    const Names weights = Differing(run.weights[index], reference.weights[step], limit);
    if (!weights.empty()) {
      return see(when, Describe(kind, "weights", weights, NamesOf(expected), looked.fault));
    }
  }
}

// How a run ended that did not come to its end.
Seen SeenOf(const Kind& kind, const Outcome& run, const Names& known) {
  const std::string message(run.status.message());
  Seen seen{.names = NamesIn(message, known)};
  switch (run.ended_in) {
    case Stage::kPlan:
      return {"engine", "before the first step", seen.names};
    case Stage::kSave:
      return {"manifest", "at the save", seen.names};
    case Stage::kOpen:
      return {"checksums", "before the resume", seen.names};
    case Stage::kRestore:
      return {"restore", "before its first step", seen.names};
    default:
      seen.by = absl::StrContains(message, "silent corruption") ? "replicas"
                : absl::StrContains(message, "NaN or Inf")      ? "votes"
                                                                : "communicator";
      seen.when = StepText(kind, run.ended_at, run.begin);
      return seen;
  }
}

void CheckPlan(const Kind& kind, const Names& known, Looked& looked) {
  v1::Plan plan = PlanOf(kind.job, {});
  kind.plant.plan(plan);
  absl::Status status = plan::VerifyPlan(plan);
  if (status.ok()) {
    const auto graph = model::BuildModel(plan.job().model().config());
    TRIREME_CHECK(graph.ok());
    status = plan::CheckGradientsReduced(plan, *graph);
  }
  if (status.ok()) return;
  looked.seen.push_back(
      {"plan check", "before launch", NamesIn(std::string(status.message()), known)});
}

Outcome ReferenceOf(const Kind& kind) {
  Job job = kind.job;
  // A resume is compared with the run that never stopped, anything else with one rank.
  if (!job.resumes) job.layout = {};
  const Outcome reference = Run(job, {}, {.unbroken = true, .keeps_tensors = true});
  TRIREME_CHECK(reference.status.ok());
  return reference;
}

void LookAtRuns(const Kind& kind, const Plant& plant, const Outcome& reference, const Names& known,
                Looked& looked) {
  // As the product runs by default, but comparing in each step; then with the numbers alone.
  for (const bool compares : {true, false}) {
    const Outcome run = Run(kind.job, plant, {.compares = compares, .keeps_tensors = true});
    if (!run.status.ok()) {
      const Seen seen = SeenOf(kind, run, known);
      const bool told = std::any_of(looked.seen.begin(), looked.seen.end(),
                                    [&](const Seen& each) { return each.by == seen.by; });
      if (!told) looked.seen.push_back(seen);
      continue;
    }
    CompareNumbers(kind, run, reference, looked);
    if (run.repeated.sample >= 0) {
      const auto step = static_cast<uint64_t>(
          run.repeated.sample / SpecOf(kind.job, {}).training().global_batch_size() + 1);
      looked.seen.push_back(
          {kLedger, StepText(kind, step, run.begin),
           absl::StrCat("replica ", run.repeated.replica, ", sample ", run.repeated.sample)});
    }
    return;
  }
}

}  // namespace

bool IsOfProduct(const Seen& seen) {
  return seen.by != kParity && seen.by != kResume && seen.by != kLedger;
}

std::string NamesIn(const std::string& message, const std::set<std::string>& known) {
  static const std::regex pattern(
      "(stages?|virtual stage|buckets?|ranks?|samples?|micro-batch|instruction) "
      "[0-9]+(, [0-9]+| to [0-9]+)*|rank-[0-9]+\\.safetensors|manifest\\.json|pool [A-Z0-9_]+|"
      "[0-9]+ (blocks|layers|of [0-9]+ elements)|[a-z_][a-z_0-9]*(\\.[a-z_0-9]+)+");
  std::vector<std::string> tensors, others;
  for (std::sregex_iterator at(message.begin(), message.end(), pattern), end; at != end; ++at) {
    const std::string text = at->str();
    const bool is_other =
        absl::StrContains(text, ' ') || absl::StartsWith(text, "rank-") || text == "manifest.json";
    if (!is_other && !known.contains(text)) continue;
    std::vector<std::string>& names = is_other ? others : tensors;
    if (std::find(names.begin(), names.end(), text) == names.end()) names.push_back(text);
  }
  const auto listed = [](const std::vector<std::string>& names) {
    const size_t named = std::min(names.size(), kMostNamed);
    std::string text = absl::StrJoin(names.begin(), names.begin() + static_cast<int>(named), ", ");
    if (named < names.size()) absl::StrAppend(&text, " and others");
    return text;
  };
  const std::string first = listed(tensors);
  return absl::StrCat(first, first.empty() || others.empty() ? "" : ", ", listed(others));
}

Looked LookAtPlanted(const Kind& kind) {
  Looked looked;
  const Outcome reference = ReferenceOf(kind);
  const Names known = NamesOf(reference.weights.front());
  if (kind.plant.plan) CheckPlan(kind, known, looked);
  LookAtRuns(kind, kind.plant, reference, known, looked);
  for (const std::string& name : kind.names) {
    const bool told = std::any_of(looked.seen.begin(), looked.seen.end(), [&](const Seen& seen) {
      return absl::StrContains(seen.names, name);
    });
    if (!told) absl::StrAppend(&looked.fault, "; nobody names ", name);
  }
  return looked;
}

Looked LookAtHealthy(const Kind& kind) {
  Looked looked;
  const Outcome reference = ReferenceOf(kind);
  LookAtRuns(kind, {}, reference, NamesOf(reference.weights.front()), looked);
  const Outcome run = Run(kind.job, {}, {.compares = true, .keeps_tensors = true});
  if (run.gradients.size() + run.begin != RunOptions().steps) looked.fault = "; too few steps";
  return looked;
}

}  // namespace trireme::silent_bugs
