// Token ids kept as narrow as the vocabulary allows: 1, 2 or 4 bytes each.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace trireme::data {

constexpr int64_t IdBytes(int64_t vocab_size) {
  return vocab_size > 65536 ? 4 : vocab_size > 256 ? 2 : 1;
}

class TokenArray {
 public:
  explicit TokenArray(int64_t vocab_size) {
    if (IdBytes(vocab_size) == 4) {
      ids_.emplace<std::vector<int32_t>>();
    } else if (IdBytes(vocab_size) == 2) {
      ids_.emplace<std::vector<uint16_t>>();
    }
  }
  void Reserve(int64_t tokens) {
    std::visit([&](auto& ids) { ids.reserve(static_cast<size_t>(tokens)); }, ids_);
  }
  void Append(int32_t id) {
    std::visit(
        [&](auto& ids) {
          using Id = typename std::decay_t<decltype(ids)>::value_type;
          ids.push_back(static_cast<Id>(id));
        },
        ids_);
  }
  int64_t size() const {
    return std::visit([](const auto& ids) { return static_cast<int64_t>(ids.size()); }, ids_);
  }
  // Tokens [begin, begin + out.size()), which lie inside.
  void Read(int64_t begin, std::span<int32_t> out) const {
    std::visit(
        [&](const auto& ids) {
          const auto* from = ids.data() + begin;
          for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(from[i]);
        },
        ids_);
  }

 private:
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<int32_t>> ids_;
};

}  // namespace trireme::data
