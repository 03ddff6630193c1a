#include "runtime/spec/transfer_rules.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "compress/codec.h"
#include "runtime/spec/yaml_document.h"

namespace trireme::spec {
namespace {

void Refuse(std::vector<Fault>& faults, absl::string_view path, std::string text) {
  faults.push_back({std::string(path), std::move(text)});
}

}  // namespace

// Every bound is read, also of what is off: a slip is heard before somebody turns it on.
void CompressionBounds(const v1::JobSpec& spec, std::vector<Fault>& faults) {
  // Below, every value would travel as it is.
  constexpr double kLeast = 1e-7, kLeastAbsolute = 1e-30, kMost = 1000;
  const auto check = [&](const char* path, const std::string& text, bool range_known) {
    const char* const legal =
        range_known ? "rms:E, range:E or abs:E, as in rms:0.05" : "rms:E or abs:E, as in rms:0.5";
    const auto bound = compress::ParseBound(text);
    if (!bound.ok() || (bound->mode == compress::BoundMode::kRange && !range_known)) {
      Refuse(faults, path, absl::StrCat("\"", Printable(text), "\" is no bound, expected ", legal));
      return;
    }
    const bool absolute = bound->mode == compress::BoundMode::kAbsolute;
    const double least = absolute ? kLeastAbsolute : kLeast;
    if (!(bound->value >= least && bound->value <= kMost)) {
      Refuse(faults, path,
             absl::StrCat(bound->value, " is out of range, expected ", least, " <= E <= ", kMost,
                          "; mode: off sends everything as it is"));
    }
  };
  const v1::CompressionSpec& compression = spec.compression();
  if (compression.data_parallel().has_bound()) {
    check("compression.data_parallel.bound", compression.data_parallel().bound(), false);
  }
  if (compression.pipeline().has_bound()) {
    check("compression.pipeline.bound", compression.pipeline().bound(), true);
  }
}

void CompressionNeedsF32(const v1::JobSpec& spec, std::vector<Fault>& faults) {
  const std::string& dtype = spec.training().dtype();
  if (dtype == "f32") return;
  const auto check = [&](const char* path, const std::string& mode) {
    if (mode != "on" && mode != "auto") return;
    Refuse(faults, path,
           absl::StrCat(mode, " codes f32 values, but training.dtype is ", dtype, "; set it to ",
                        "off, or training.dtype: f32"));
  };
  // Gradients of bf16 weights are summed in f32.
  if (dtype == "f64")
    check("compression.data_parallel.mode", spec.compression().data_parallel().mode());
  check("compression.pipeline.mode", spec.compression().pipeline().mode());
}

// Each alone says how the sums of gradients travel.
void GradientTransferFits(const v1::JobSpec& spec, std::vector<Fault>& faults) {
  if (spec.training().gradient_transfer() != "bf16") return;
  constexpr absl::string_view kPath = "training.gradient_transfer";
  if (spec.training().dtype() == "f64") {
    Refuse(faults, kPath,
           "bf16 would round sums that training.dtype f64 makes in f64; set it to f32, which "
           "leaves them as they are, or training.dtype: f32");
  }
  const std::string& mode = spec.compression().data_parallel().mode();
  if (mode == "on" || mode == "auto") {
    Refuse(faults, kPath,
           absl::StrCat("bf16 and compression.data_parallel.mode: ", mode,
                        " both say how gradients travel; set it to f32, or the mode to off"));
  }
}

}  // namespace trireme::spec
