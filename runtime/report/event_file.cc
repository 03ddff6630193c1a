// Little-endian throughout, as protobuf and TFRecord are.
#include "runtime/report/event_file.h"

#include <cstring>

#include "runtime/checksum/crc32c.h"

namespace trireme::report {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr size_t kLengthBytes = 8;
constexpr size_t kChecksumBytes = 4;

template <typename Number>
void AppendRaw(Number number, std::string& to) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <typename Number>
Number ReadRaw(std::string_view from) {
  Number number;
  std::memcpy(&number, from.data(), sizeof number);
  return number;
}

void AppendVarint(uint64_t number, std::string& to) {
  for (; number >= 0x80; number >>= 7) to += static_cast<char>(number | 0x80);
  to += static_cast<char>(number);
}

void AppendKey(uint32_t field, WireType type, std::string& to) {
  AppendVarint(field << 3 | type, to);
}

void AppendBytes(uint32_t field, std::string_view bytes, std::string& to) {
  AppendKey(field, kBytes, to);
  AppendVarint(bytes.size(), to);
  to += bytes;
}

// Bits turned and a constant added: a CRC of data that holds CRCs would be weak (TensorFlow,
// core/lib/hash/crc32c.h).
uint32_t MaskedChecksum(std::string_view bytes) {
  const uint32_t crc = checksum::Crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::string Framed(const std::string& data) {
  std::string record;
  AppendRaw(static_cast<uint64_t>(data.size()), record);
  AppendRaw(MaskedChecksum(record), record);
  record += data;
  AppendRaw(MaskedChecksum(data), record);
  return record;
}

// Time first and step second, always both: EventBytesThrough reads them there.
std::string EventOf(double wall_time_s, uint64_t step) {
  std::string event;
  AppendKey(1, kFixed64, event);
  AppendRaw(wall_time_s, event);
  AppendKey(2, kVarint, event);
  AppendVarint(step, event);
  return event;
}

std::optional<uint64_t> StepOf(std::string_view event) {
  constexpr size_t kKeyAt = 1 + sizeof(double);
  if (event.size() < kKeyAt + 2 || event[0] != 0x09 || event[kKeyAt] != 0x10) return std::nullopt;
  uint64_t step = 0;
  for (size_t i = 0; i < 10 && kKeyAt + 1 + i < event.size(); ++i) {
    const auto byte = static_cast<unsigned char>(event[kKeyAt + 1 + i]);
    step |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) return step;
  }
  return std::nullopt;
}

}  // namespace

std::string EventFileHead(double wall_time_s) {
  std::string event = EventOf(wall_time_s, 0);
  AppendBytes(3, "brain.Event:2", event);
  return Framed(event);
}

std::string SessionStartEvent(double wall_time_s, uint64_t step) {
  std::string event = EventOf(wall_time_s, step);
  AppendBytes(7, std::string_view("\x08\x01", 2), event);
  return Framed(event);
}

std::string ScalarEvent(double wall_time_s, uint64_t step, std::span<const EventScalar> scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;
    AppendBytes(1, tag, entry);
    AppendKey(2, kFixed32, entry);
    AppendRaw(static_cast<float>(value), entry);
    AppendBytes(1, entry, summary);
  }
  std::string event = EventOf(wall_time_s, step);
  AppendBytes(5, summary, event);
  return Framed(event);
}

size_t EventBytesThrough(std::string_view file, uint64_t last_step) {
  size_t end = 0;
  while (true) {
    const std::string_view rest = file.substr(end);
    constexpr size_t kFrame = kLengthBytes + 2 * kChecksumBytes;
    if (rest.size() < kFrame) return end;
    const auto length = ReadRaw<uint64_t>(rest);
    if (length > rest.size() - kFrame) return end;
    const std::string_view data = rest.substr(kLengthBytes + kChecksumBytes, length);
    const std::string_view after = rest.substr(kLengthBytes + kChecksumBytes + length);
    if (ReadRaw<uint32_t>(rest.substr(kLengthBytes)) !=
            MaskedChecksum(rest.substr(0, kLengthBytes)) ||
        ReadRaw<uint32_t>(after) != MaskedChecksum(data)) {
      return end;
    }
    const std::optional<uint64_t> step = StepOf(data);
    if (!step || *step > last_step) return end;
    end += kFrame + length;
  }
}

}  // namespace trireme::report
