#include "runtime/comm/coding.h"

namespace trireme::comm {

namespace {

void AddTo(std::atomic<double>& sum, double value) {
  double before = sum.load(std::memory_order_relaxed);
  while (!sum.compare_exchange_weak(before, before + value, std::memory_order_relaxed)) {
  }
}

}  // namespace

void CodingTotals::Add(const CodingReport& report) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  plain_bytes_.fetch_add(report.plain_bytes, std::memory_order_relaxed);
  coded_bytes_.fetch_add(report.coded_bytes, std::memory_order_relaxed);
  codec_ns_.fetch_add(report.codec_ns, std::memory_order_relaxed);
  total_ns_.fetch_add(report.total_ns, std::memory_order_relaxed);
  if (report.value_squares > 0) {
    AddTo(error_squares_, report.error_squares);
    AddTo(value_squares_, report.value_squares);
  }
  double largest = largest_error_.load(std::memory_order_relaxed);
  while (report.largest_error > largest &&
         !largest_error_.compare_exchange_weak(largest, report.largest_error,
                                               std::memory_order_relaxed)) {
  }
}

CodingReport CodingTotals::sum() const {
  CodingReport report;
  report.plain_bytes = plain_bytes_.load(std::memory_order_relaxed);
  report.coded_bytes = coded_bytes_.load(std::memory_order_relaxed);
  report.codec_ns = codec_ns_.load(std::memory_order_relaxed);
  report.total_ns = total_ns_.load(std::memory_order_relaxed);
  report.largest_error = largest_error_.load(std::memory_order_relaxed);
  report.error_squares = error_squares_.load(std::memory_order_relaxed);
  report.value_squares = value_squares_.load(std::memory_order_relaxed);
  return report;
}

}  // namespace trireme::comm
