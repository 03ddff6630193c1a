#include "runtime/comm/coding.h"

namespace trireme::comm {

void CodingTotals::Add(const CodingReport& report) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  plain_bytes_.fetch_add(report.plain_bytes, std::memory_order_relaxed);
  coded_bytes_.fetch_add(report.coded_bytes, std::memory_order_relaxed);
  codec_ns_.fetch_add(report.codec_ns, std::memory_order_relaxed);
  total_ns_.fetch_add(report.total_ns, std::memory_order_relaxed);
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
  return report;
}

}  // namespace trireme::comm
