#include "runtime/spec/resource_rules.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/spec/yaml_document.h"

namespace trireme::spec {

void RanksFillTheMesh(const v1::JobSpec& spec, std::vector<Fault>& faults) {
  const int64_t ranks = spec.resources().ranks();
  const int64_t replicas = spec.parallelism().data_parallel_size();
  const int64_t tensor = spec.parallelism().tensor_parallel_size();
  const int64_t pipeline = spec.parallelism().pipeline_parallel_size();
  constexpr int64_t kMost = 1 << 20;
  if (ranks < 1 || ranks > kMost || replicas < 0 || replicas > kMost) return;
  if (tensor < 1 || tensor > (1 << 16) || pipeline < 1 || pipeline > (1 << 16)) return;
  const std::string path = "resources.ranks";
  const std::string inner =
      absl::StrCat("tensor_parallel_size ", tensor, " x pipeline_parallel_size ", pipeline);
  if (replicas > 0 && ranks != replicas * tensor * pipeline) {
    faults.push_back(
        {path, absl::StrCat(ranks, " is not data_parallel_size ", replicas, " x ", inner, " = ",
                            replicas * tensor * pipeline,
                            "; remove one of the two lines, ranks or data_parallel_size")});
  } else if (ranks % (tensor * pipeline) != 0) {
    faults.push_back(
        {path, absl::StrCat(ranks, " is no multiple of ", inner, " = ", tensor * pipeline,
                            ", so that replicas cannot be whole; ", "expected ", tensor * pipeline,
                            ", ", 2 * tensor * pipeline, " ..., or 0")});
  }
}

void NodesAreNames(const v1::JobSpec& spec, std::vector<Fault>& faults) {
  std::set<std::string> named;
  for (int i = 0; i < spec.resources().nodes_size(); ++i) {
    const std::string& name = spec.resources().nodes(i);
    const std::string path = absl::StrCat("resources.nodes[", i, "]");
    const bool legal = std::all_of(name.begin(), name.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
    });
    if (!legal || name.empty() || name.size() > 253) {
      faults.push_back({path, absl::StrCat("\"", Printable(name),
                                           "\" is no name of a node, expected 1 to 253 letters, "
                                           "digits, '-', '_' and '.'")});
    } else if (!named.insert(name).second) {
      faults.push_back({path, absl::StrCat("\"", name, "\" is named twice; remove one")});
    }
  }
}

}  // namespace trireme::spec
