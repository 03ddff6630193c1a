#include "coordinator/job_machine/unable_nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/job_machine/reasons.h"

namespace trireme::coordinator {
namespace {

bool ForgetUnable(const std::string& node, v1::JobStatus& status) {
  auto& nodes = *status.mutable_unable_nodes();
  const auto found = std::find(nodes.begin(), nodes.end(), node);
  if (found == nodes.end()) return false;
  nodes.erase(found);
  return true;
}

// Those that bring the job no nearer to its end: the first on each node but one.
uint32_t FirstTries(const v1::JobStatus& status) {
  return static_cast<uint32_t>(std::max(0, status.unable_nodes_size() - 1));
}

}  // namespace

void CountUnstarted(const std::string& node, v1::JobStatus& status) {
  status.set_unstarted(status.unstarted() + 1);
  if (node.empty()) return;
  ForgetUnable(node, status);
  auto& nodes = *status.mutable_unable_nodes();
  if (nodes.size() >= kMostUnableNodes) nodes.erase(nodes.begin());
  *nodes.Add() = node;
}

void ForgetUnstarted(v1::JobStatus& status) {
  status.clear_unstarted();
  status.clear_unable_nodes();
}

bool LetBack(const std::string& node, v1::JobStatus& status) {
  const uint32_t tries = TriesInVain(status);
  if (!ForgetUnable(node, status)) return false;
  if (status.unable_nodes().empty()) {
    ForgetUnstarted(status);
  } else {
    // How many of the tries were on it is not known. With kUnableAfter left a job that waits for
    // others does so still.
    status.set_unstarted(FirstTries(status) + std::min(tries, kUnableAfter));
  }
  return true;
}

bool LetTry(const std::string& node, v1::JobStatus& status) {
  const uint32_t tries = TriesInVain(status);
  if (!ForgetUnable(node, status)) return false;
  status.set_unstarted(FirstTries(status) + tries);
  return true;
}

void CountAtMost(uint32_t most, v1::JobStatus& status) {
  status.set_unstarted(std::min(status.unstarted(), FirstTries(status) + most));
}

bool IsUnable(const std::string& node, const v1::JobStatus& status) {
  const auto& nodes = status.unable_nodes();
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

const std::string& NodeOfRank(const v1::Job& job, int rank) {
  int64_t next = 0;
  for (const v1::NodeAllocation& part : job.allocation()) {
    next += part.ranks();
    if (rank >= 0 && rank < next) return part.node();
  }
  return job.allocation(0).node();
}

uint32_t TriesInVain(const v1::JobStatus& status) {
  return status.unstarted() - std::min(FirstTries(status), status.unstarted());
}

std::string UnableText(const v1::JobStatus& status) {
  constexpr int kMost = 4;
  const int count = status.unable_nodes_size();
  std::string text;
  for (int i = 0; i < std::min(count, kMost); ++i) {
    text += (i == 0 ? "" : ", ") + OneLine(status.unable_nodes(i));
  }
  return count > kMost ? fmt::format("{} and {} more", text, count - kMost) : text;
}

}  // namespace trireme::coordinator
