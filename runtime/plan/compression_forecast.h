// What coding does to the transfers of a plan, before it runs: bytes of a step, time on the link,
// and the bandwidth below which it pays. Pure.
#pragma once

#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// What the rank that sends most sends over one axis in a training step, in bytes of f32.
struct TransferBytes {
  double coded = 0;  // of transfers that the plan marks; as bf16 half of it is sent
  double plain = 0;  // of the others
  int coded_transfers = 0;
  int transfers = 0;
};
// Sums of gradients, and under ZeRO the parameters that are gathered: (n - 1) / n of the bytes are
// sent for each of scatter and gather, n replicas.
TransferBytes DataBytes(const v1::Plan& plan);
// Activations and gradients between stages.
TransferBytes PipelineBytes(const v1::Plan& plan);

// Of the codec on one core, on values like those to be sent.
struct CodecFigures {
  double compress_bytes_per_s = 0;  // of floats
  double decompress_bytes_per_s = 0;
  double ratio = 1;
};

// With S = 1 / (1/compress + 1/decompress) and ratio R, coding a byte and sending 1/R of it takes
// 1/S + 1/(R B) on a link of B bytes/s: less than 1/B where B < S (1 - 1/R). Where the codec works
// while the link does, it pays up to B = S.
struct CompressionForecast {
  double pays_below_bytes_per_s = 0;
  double pays_overlapped_below_bytes_per_s = 0;
  // Of the step's bytes one after the other, nothing hidden; 0 where the link is not known.
  double plain_s = 0;
  double coded_s = 0;
};
// `link_bytes_per_s` 0: not known.
CompressionForecast Forecast(const TransferBytes& bytes, const CodecFigures& codec,
                             double link_bytes_per_s);

}  // namespace trireme::plan
