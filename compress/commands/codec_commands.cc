// `trireme codec compress|decompress|stat` (docs/formats/codec_stream.md). An output appears whole
// or not at all: it is written beside its name and renamed.
#include "compress/commands/codec_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"
#include "runtime/json/json_text.h"

namespace trireme::compress {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

struct FileOptions {
  std::string in, out, bound, type = "f32";
  int threads = 0;  // 0: one per core
  bool force = false;
  bool json = false;
  uint64_t first = 0;
  int64_t count = -1;  // -1: to the end
};

void PrintJson(const nlohmann::ordered_json& object) {
  fmt::print("{}\n", json_text::Write(object));
  std::fflush(stdout);
}

CodecOptions ThreadsOf(const FileOptions& options) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return {.threads = options.threads > 0 ? options.threads : cores};
}

absl::StatusOr<Bytes> ReadFile(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return absl::NotFoundError(fmt::format("{}: no such file", path));
  }
  std::ifstream file(path, std::ios::binary);
  Bytes bytes(fs::file_size(path, error));
  if (error || !file ||
      !file.read(reinterpret_cast<char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()))) {
    return absl::PermissionDeniedError(fmt::format("{}: cannot be read", path));
  }
  return bytes;
}

absl::Status CheckOutput(const FileOptions& options) {
  std::error_code error;
  if (fs::exists(options.out, error) && !options.force) {
    return absl::AlreadyExistsError(
        fmt::format("{}: exists; give --force to replace it, or another name", options.out));
  }
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, const std::byte* bytes, size_t size) {
  return base::WriteWholeFile(path, {reinterpret_cast<const char*>(bytes), size});
}

// The file's name before what is wrong in it.
absl::Status In(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), fmt::format("{}: {}", path, std::string(status.message())));
}

double RatioOf(const StreamInfo& info) {
  const auto values = static_cast<double>(info.count) * static_cast<double>(SizeOf(info.type));
  return values / static_cast<double>(info.bytes);
}

absl::Status CompressFile(const FileOptions& options) {
  ASSIGN_OR_RETURN(const ElementType type, ParseElementType(options.type));
  ASSIGN_OR_RETURN(const Bound bound, ParseBound(options.bound));
  RETURN_IF_ERROR(CheckOutput(options));
  ASSIGN_OR_RETURN(const Bytes values, ReadFile(options.in));
  const size_t size = SizeOf(type);
  if (values.size() % size != 0) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} bytes are no whole number of {} values of {} bytes; is --type right?",
                    options.in, values.size(), options.type, size));
  }
  ASSIGN_OR_RETURN(const Bytes stream, Compress({type, values.data(), values.size() / size}, bound,
                                                ThreadsOf(options)));
  ASSIGN_OR_RETURN(const StreamInfo info, ReadInfo(stream));
  RETURN_IF_ERROR(WriteFile(options.out, stream.data(), stream.size()));
  if (options.json) {
    PrintJson({{"file", options.out},
               {"bytes_before", values.size()},
               {"bytes", stream.size()},
               {"ratio", RatioOf(info)},
               {"largest_error", info.quantiser.absolute}});
    return absl::OkStatus();
  }
  fmt::print("{}: {} bytes to {}, ratio {:.2f}, every error at most {:.6g}\n", options.out,
             values.size(), stream.size(), RatioOf(info), info.quantiser.absolute);
  return absl::OkStatus();
}

absl::Status DecompressFile(const FileOptions& options) {
  RETURN_IF_ERROR(CheckOutput(options));
  ASSIGN_OR_RETURN(const Bytes stream, ReadFile(options.in));
  const auto info = ReadInfo(stream);
  if (!info.ok()) return In(options.in, info.status());
  if (options.first > info->count) {
    return absl::OutOfRangeError(fmt::format("{}: --first {} lies beyond its {} values", options.in,
                                             options.first, info->count));
  }
  const uint64_t left = info->count - options.first;
  const uint64_t count = options.count < 0 ? left : static_cast<uint64_t>(options.count);
  if (count > left) {
    return absl::OutOfRangeError(fmt::format("{}: has {} values from {} on, not {}", options.in,
                                             left, options.first, count));
  }
  // Not cleared first: all of it is written.
  const size_t bytes = count * SizeOf(info->type);
  const std::unique_ptr<std::byte[]> values(new std::byte[bytes]);
  const absl::Status status =
      DecompressRange(stream, options.first, {info->type, values.get(), count}, ThreadsOf(options));
  if (!status.ok()) return In(options.in, status);
  RETURN_IF_ERROR(WriteFile(options.out, values.get(), bytes));
  if (options.json) {
    PrintJson({{"file", options.out}, {"values", count}, {"type", NameOf(info->type)}});
    return absl::OkStatus();
  }
  fmt::print("{}: {} values of {}\n", options.out, count, NameOf(info->type));
  return absl::OkStatus();
}

void PrintStat(const StreamInfo& info, const StreamStatistics& statistics) {
  const Quantiser& quantiser = info.quantiser;
  fmt::print("values       {} of {}\n", info.count, NameOf(info.type));
  fmt::print("bytes        {}, ratio {:.2f}\n", info.bytes, RatioOf(info));
  fmt::print("bound        {}:{:.6g}, absolute {:.6g}, step {:.6g}\n",
             NameOf(quantiser.requested.mode), quantiser.requested.value, quantiser.absolute,
             quantiser.step);
  fmt::print("pieces       {}: {} quantised, {} ordered, {} verbatim; {} by differences\n",
             info.pieces, statistics.quantised_pieces, statistics.ordered_pieces,
             statistics.verbatim_pieces, statistics.predicted_pieces);
  fmt::print("blocks       {}: {} empty, {} constant, {} verbatim\n", statistics.blocks,
             statistics.empty_blocks, statistics.constant_blocks, statistics.verbatim_blocks);
  fmt::print("packed       {} bytes\n", statistics.packed_bytes);
  fmt::print("patches      {} in {} bytes\n", statistics.patches, statistics.patch_bytes);
  fmt::print("exceptions   {} in {} bytes\n", statistics.exceptions, statistics.exception_bytes);
  fmt::print("checksums    right\n");
}

void PrintStatJson(const StreamInfo& info, const StreamStatistics& statistics) {
  const Quantiser& quantiser = info.quantiser;
  PrintJson({{"values", info.count},
             {"type", NameOf(info.type)},
             {"bytes", info.bytes},
             {"ratio", RatioOf(info)},
             {"bound",
              {{"mode", NameOf(quantiser.requested.mode)},
               {"value", quantiser.requested.value},
               {"absolute", quantiser.absolute},
               {"step", quantiser.step}}},
             {"pieces",
              {{"all", info.pieces},
               {"quantised", statistics.quantised_pieces},
               {"ordered", statistics.ordered_pieces},
               {"verbatim", statistics.verbatim_pieces},
               {"by_differences", statistics.predicted_pieces}}},
             {"blocks",
              {{"all", statistics.blocks},
               {"empty", statistics.empty_blocks},
               {"constant", statistics.constant_blocks},
               {"verbatim", statistics.verbatim_blocks}}},
             {"packed_bytes", statistics.packed_bytes},
             {"patches", statistics.patches},
             {"patch_bytes", statistics.patch_bytes},
             {"exceptions", statistics.exceptions},
             {"exception_bytes", statistics.exception_bytes}});
}

absl::Status ShowFile(const FileOptions& options) {
  ASSIGN_OR_RETURN(const Bytes stream, ReadFile(options.in));
  const auto info = ReadInfo(stream);
  if (!info.ok()) return In(options.in, info.status());
  const auto statistics = Inspect(stream);
  if (!statistics.ok()) return In(options.in, statistics.status());
  options.json ? PrintStatJson(*info, *statistics) : PrintStat(*info, *statistics);
  return absl::OkStatus();
}

void AddFiles(CLI::App& command, FileOptions& options) {
  command.add_option("in", options.in, "file to read")->required()->type_name("IN");
  command.add_option("out", options.out, "file to write")->required()->type_name("OUT");
  command.add_flag("--force", options.force, "replace OUT if it exists");
  command.add_option("--threads", options.threads, "default: one per core")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
}

}  // namespace

void AddCodecCommands(CLI::App& app, const std::function<void(const absl::Status&)>& done) {
  CLI::App* codec = app.add_subcommand("codec", "raw floating-point files within an error bound");
  codec->require_subcommand(1);
  const auto options = std::make_shared<FileOptions>();
  CLI::App* compress = codec->add_subcommand("compress", "raw little-endian values to a stream");
  AddFiles(*compress, *options);
  compress
      ->add_option("--bound", options->bound,
                   "abs:E, range:E (times the value range) or rms:E (times the root mean "
                   "square); 0 keeps every bit")
      ->required()
      ->type_name("MODE:E");
  compress->add_option("--type", options->type, "f32, bf16, f16 or f64; default: f32")
      ->type_name("TYPE");
  compress->callback([=] { done(CompressFile(*options)); });
  CLI::App* decompress = codec->add_subcommand("decompress", "a stream to raw values");
  AddFiles(*decompress, *options);
  decompress->add_option("--first", options->first, "first value wanted")->type_name("I");
  decompress->add_option("--count", options->count, "how many; default: to the end")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  decompress->callback([=] { done(DecompressFile(*options)); });
  CLI::App* stat = codec->add_subcommand("stat", "what a stream holds; compares its checksums");
  stat->add_option("in", options->in, "stream")->required()->type_name("FILE");
  for (CLI::App* command : {compress, decompress, stat}) {
    command->add_flag("--json", options->json, "the answer as JSON");
  }
  stat->callback([=] { done(ShowFile(*options)); });
  codec->footer(
      "Examples:\n"
      "  trireme codec compress gradients.f32 gradients.tc --bound rms:0.1\n"
      "  trireme codec decompress gradients.tc back.f32 --first 1000000 --count 256\n"
      "  trireme codec stat gradients.tc");
}

}  // namespace trireme::compress
