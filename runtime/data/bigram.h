// The yardstick a language model must beat: what the last token alone tells about the next.
#pragma once

#include "runtime/data/dataset.h"

namespace trireme::data {

// Cross-entropy, nats per token, of an add-one-smoothed bigram model over token ids, counted on the
// training split and evaluated on every token but the first of the validation split. NaN without a
// validation split. O(tokens), and memory for the distinct pairs of a large vocabulary or
// vocab_size^2 counts of a small one.
double ByteBigramLoss(const Dataset& dataset);

}  // namespace trireme::data
