// A text that a tiny model can learn something of in 200 steps, read as the product reads texts
// (data::SampleOrder), and a ledger of who has read which part of it.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/sample_order.h"
#include "tests/runtime/data/random_dataset.h"
#include "tests/silent_bugs/plant.h"

namespace trireme::silent_bugs {

struct Reading {
  uint32_t replica = 0;
  int64_t sample = 0;  // that was asked for
  int64_t start = 0;   // of the window that was read
};

// What all replicas have read. Thread: any.
class Ledger {
 public:
  void Note(const Reading& reading);
  // The first sample that reads what another one of its epoch has read; `sample` is -1 where there
  // is none.
  Reading FirstRepeated(int64_t windows) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Reading> readings_;
};

constexpr int64_t kVocabulary = 29;
constexpr int64_t kTokens = 5;  // of a sample

// What one rank reads.
class Text : public data::Dataset {
 public:
  struct Reader {
    uint32_t replica = 0;
    int64_t first = 0;         // sample that this part of the run begins with
    Ledger* ledger = nullptr;  // may be null
  };
  // `plant` may change which window is read, and outlives it, as the ledger does.
  Text(const Plant& plant, const Reader& reader);

  static int64_t Windows();

  const data::Tokenizer& tokenizer() const override { return tokenizer_; }
  int64_t samples(data::Split) const override { return Windows(); }
  int64_t sequence_length() const override { return kTokens; }
  int64_t tokens(data::Split) const override;
  void Read(data::Split, int64_t begin, std::span<int32_t> out) const override;
  void Fill(data::Split, int64_t sample, std::span<int32_t> tokens,
            std::span<int32_t> targets) const override;

 private:
  const Plant& plant_;
  Reader reader_;
  data::SampleOrder order_;
  data::RandomTokenizer tokenizer_{kVocabulary};
};

}  // namespace trireme::silent_bugs
