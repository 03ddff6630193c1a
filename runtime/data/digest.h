// A number that tells one text from another, for resuming and for ranks on different nodes.
#pragma once

#include <cstdint>

#include "runtime/data/dataset.h"

namespace trireme::data {

// FNV-1a over the ids of all tokens in the text's order, training split first, so the split's place
// does not change it. A byte format: checkpoints keep it (docs/formats/checkpoint.md). Reads the
// whole text: about a second for 1 GB.
uint64_t DigestOf(const Dataset& dataset);

}  // namespace trireme::data
