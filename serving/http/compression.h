#pragma once
// Content codings of HTTP: gzip, and deflate, which is zlib's format.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "serving/core/memory_budget.h"

namespace sluice::serving {

enum class Coding { kNone, kGzip, kDeflate };

// Of a Content-Encoding header. Throws kUnsupported.
Coding coding_of(std::string_view content_encoding);
// The best of those that an Accept-Encoding header takes.
Coding accepted_coding(std::string_view accept_encoding);
const char* coding_name(Coding coding);

// Throws kInvalidArgument for what is no such stream, or goes on behind it, kTooLarge for more than `most` bytes. What
// it unpacks is taken of `memory`, unless that is null.
std::string unpack(std::string_view data, Coding coding, size_t most, MemoryShare* memory = nullptr);
std::string pack(std::string_view data, Coding coding);

}  // namespace sluice::serving
