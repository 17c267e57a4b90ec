#pragma once
// Names of devices: (rank, kind, index).
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// A kind of device, by name: a word of a-z, 0-9 and '_' that begins with a letter, at most 16 characters long. Kinds
// are open: which there are, their backends say (streams/backend.h). The name itself is the value, packed into two
// words, so that a kind is copied and compared like a number, in the order of names, also between libraries.
class DeviceKind {
 public:
  static const DeviceKind kCpu, kSim, kCuda;
  static DeviceKind named(std::string_view name);  // throws kValue for what is no such word
  std::string str() const;                         // "cpu"
  uint64_t hash() const { return words_[0] ^ words_[1] * 0x9e3779b97f4a7c15u; }
  auto operator<=>(const DeviceKind&) const = default;

 private:
  static constexpr size_t kMaxSize = 16;
  constexpr explicit DeviceKind(std::string_view name) {
    for (size_t i = 0; i < name.size(); ++i)
      words_[i / 8] |= static_cast<uint64_t>(static_cast<unsigned char>(name[i])) << (56 - i % 8 * 8);
  }
  uint64_t words_[2] = {};  // the first character is the most significant
};
inline constexpr DeviceKind DeviceKind::kCpu{"cpu"}, DeviceKind::kSim{"sim"}, DeviceKind::kCuda{"cuda"};

struct DeviceId {
  int rank = 0;
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  std::string str() const;  // "cpu:0"; "1/cuda:0" for rank 1
  auto operator<=>(const DeviceId&) const = default;
};

// Parses "cpu", "sim:1", "2/cuda:0". Throws kValue for what is not so written; whether there is such a device is
// another question.
DeviceId parse_device(std::string_view text);

}  // namespace sluice
