// Did-you-mean.
#pragma once

#include <string>
#include <vector>

namespace trireme::cli {

// The candidate nearest to `word` by letters inserted, deleted, changed or swapped; empty if none
// is near (a third of its letters, at least two).
std::string Nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace trireme::cli
