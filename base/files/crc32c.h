#pragma once
// CRC-32C (Castagnoli), of which record files have one for each length and each record.
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

// crc32c("123456789") is 0xE3069283.
uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace sluice
