#include "tests/silent_bugs/text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/base/philox.h"

namespace trireme::silent_bugs {

namespace {

constexpr int64_t kTextTokens = 6001;
constexpr uint64_t kTextSeed = 3;

// Half of the tokens follow from the one before, a third repeat the one before that (attention is
// needed to see it), the others are drawn.
std::vector<int32_t> MakeText() {
  const base::RandomSite site{kTextSeed, base::SiteOf("text"), 0};
  std::vector<int32_t> text(kTextTokens);
  for (size_t at = 0; at < text.size(); ++at) {
    const uint32_t kind = site.Uniform32(2 * at) % 100;
    if (at >= 2 && kind < 50) {
      text[at] = static_cast<int32_t>((3 * text[at - 1] + 7) % kVocabulary);
    } else if (at >= 2 && kind < 85) {
      text[at] = text[at - 2];
    } else {
      text[at] = static_cast<int32_t>(site.Uniform32(2 * at + 1) % kVocabulary);
    }
  }
  return text;
}

const std::vector<int32_t>& TheText() {
  static const std::vector<int32_t> text = MakeText();
  return text;
}

data::SampleOrder TheOrder() {
  return {.order = data::Order::kShuffled,
          .seed = kTextSeed,
          .tokens = kTextTokens,
          .sequence_length = kTokens};
}

}  // namespace

void Ledger::Note(const Reading& reading) {
  const std::lock_guard lock(mutex_);
  readings_.push_back(reading);
}

Reading Ledger::FirstRepeated(int64_t windows) const {
  const std::lock_guard lock(mutex_);
  std::vector<Reading> sorted = readings_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Reading& a, const Reading& b) { return a.sample < b.sample; });
  std::map<std::pair<int64_t, int64_t>, int64_t> seen;  // (epoch, start) to sample
  for (const Reading& reading : sorted) {
    const auto [first, is_new] =
        seen.try_emplace({reading.sample / windows, reading.start}, reading.sample);
    if (!is_new && first->second != reading.sample) return reading;
  }
  return {.sample = -1};
}

Text::Text(const Plant& plant, const Reader& reader)
    : plant_(plant), reader_(reader), order_(TheOrder()) {}

int64_t Text::Windows() { return TheOrder().windows(); }

int64_t Text::tokens(data::Split) const { return kTextTokens; }

void Text::Read(data::Split, int64_t begin, std::span<int32_t> out) const {
  std::copy_n(TheText().begin() + begin, out.size(), out.begin());
}

void Text::Fill(data::Split, int64_t sample, std::span<int32_t> tokens,
                std::span<int32_t> targets) const {
  const int64_t start = plant_.start ? plant_.start(order_, reader_.replica, sample, reader_.first)
                                     : order_.Start(sample);
  if (reader_.ledger != nullptr) reader_.ledger->Note({reader_.replica, sample, start});
  for (int64_t t = 0; t < kTokens; ++t) {
    const auto at = static_cast<size_t>(t);
    tokens[at] = TheText()[static_cast<size_t>(start + t)];
    // As of documents that end within a window: a share of targets that differs by sample.
    const bool counts = (start / kTokens * 3 + t * t) % 8 != 1;
    targets[at] = counts ? TheText()[static_cast<size_t>(start + t + 1)] : -1;
  }
}

}  // namespace trireme::silent_bugs
