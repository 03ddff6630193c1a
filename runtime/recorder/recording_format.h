// The bytes of a recording, version 2 (docs/formats/flight_recorder.md): one page of 64-bit words,
// native byte order. A record (position, progress) is written to the next slot of a small ring and
// then published by its sequence number, so a rank killed in the middle of a write leaves the
// record before it whole, and a reader sees a torn slot by the number.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace trireme::recorder {

inline constexpr uint64_t kMagic = 0x4345524D52495254;  // "TRIRMREC"
inline constexpr uint32_t kVersion = 2;
inline constexpr uint32_t kOldestVersion = 1;  // lacks waits and timings, whose words are zero
inline constexpr size_t kFileBytes = 4096;

inline constexpr size_t kMagicWord = 0;
inline constexpr size_t kVersionWord = 1;  // version, file bytes
inline constexpr size_t kRankWord = 2;     // rank, ranks
inline constexpr size_t kPidWord = 3;
inline constexpr size_t kStateWord = 4;
inline constexpr size_t kFailedWord = 5;        // CLOCK_MONOTONIC, ns
inline constexpr size_t kFailureBytesWord = 6;  // stored after the text
inline constexpr size_t kBlamesPeerWord = 7;    // 0 or 1
inline constexpr size_t kMemoryStepWord = 12;   // at which the attempt went on there; 0: it did not
inline constexpr size_t kRecordWords = 8;
inline constexpr size_t kFailureOffset = 2048;  // bytes
inline constexpr size_t kFailureCapacity = kFileBytes - kFailureOffset;

using Record = std::array<uint64_t, kRecordWords>;

struct Ring {
  size_t sequence_word;  // 0: no record yet
  size_t first_word;
  size_t slots;
  constexpr size_t SlotOf(uint64_t number) const {
    return first_word + (number % slots) * kRecordWords;
  }
};
inline constexpr Ring kPositions{8, 16, 8};
inline constexpr Ring kProgress{9, 80, 8};
inline constexpr Ring kWaits{10, 144, 8};
inline constexpr Ring kTimings{11, 208, 6};

// Of a word on a wait: the group's name.
inline constexpr size_t kGroupWord = 4;
inline constexpr size_t kGroupBytes = (kRecordWords - kGroupWord) * sizeof(uint64_t);

inline std::atomic_ref<uint64_t> Word(uint64_t* words, size_t index) {
  return std::atomic_ref<uint64_t>(words[index]);
}

constexpr uint64_t Pack(uint32_t low, uint32_t high) {
  return low | (static_cast<uint64_t>(high) << 32);
}
constexpr uint32_t Low(uint64_t word) { return static_cast<uint32_t>(word); }
constexpr uint32_t High(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

// One writer. `sequence` counts the records of this ring.
inline void PublishRecord(uint64_t* words, const Ring& ring, uint64_t& sequence,
                          const Record& record) {
  ++sequence;
  const size_t slot = ring.SlotOf(sequence);
  for (size_t i = 0; i < kRecordWords; ++i) {
    // A reader that sees this store sees the publication of the records before it too (Boehm, "Can
    // seqlocks get along with programming language memory models?", 2012).
    Word(words, slot + i).store(record[i], std::memory_order_release);
  }
  Word(words, ring.sequence_word).store(sequence, std::memory_order_release);
}

}  // namespace trireme::recorder
