#include "base/files/crc32c.h"

#include <array>

namespace sluice {
namespace {

using Table = std::array<std::array<uint32_t, 256>, 8>;

// Eight bytes at a time: table k is what a byte does that k others follow.
constexpr Table kTable = [] {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    table[0][byte] = crc;
  }
  for (size_t k = 1; k < table.size(); ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      table[k][byte] = table[k - 1][byte] >> 8 ^ table[0][table[k - 1][byte] & 0xFF];
  return table;
}();

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint32_t low = 0, high = 0;
    for (size_t k = 0; k < 4; ++k) {  // the order of bytes of the format, on any machine
      low |= static_cast<uint32_t>(bytes[i + k]) << (8 * k);
      high |= static_cast<uint32_t>(bytes[i + 4 + k]) << (8 * k);
    }
    low ^= crc;
    crc = 0;
    for (size_t k = 0; k < 4; ++k) crc ^= kTable[7 - k][low >> (8 * k) & 0xFF] ^ kTable[3 - k][high >> (8 * k) & 0xFF];
  }
  for (; i < bytes.size(); ++i) crc = crc >> 8 ^ kTable[0][(crc ^ static_cast<uint32_t>(bytes[i])) & 0xFF];
  return ~crc;
}

}  // namespace sluice
