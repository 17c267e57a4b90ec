#pragma once
// Content codings of HTTP: gzip, and deflate, which is zlib's format.
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "serving/core/text.h"
#include "serving/http/turns.h"

namespace sluice::serving {

enum class Coding { kNone, kGzip, kDeflate };

// The coding of a Content-Encoding header. Throws kUnsupported.
Coding coding_of(std::string_view content_encoding);
// The best of those that an Accept-Encoding header takes.
Coding accepted_coding(std::string_view accept_encoding);
const char* coding_name(Coding coding);

// Both work in turns and leave their result in `out`, which counts what it takes. `data` must stay.
//
// Throws kInvalidArgument for what is no such stream, or goes on behind it, kTooLarge for more than `most` bytes.
// Members of gzip that lie behind one another are one text. The first turn is a short one.
Turns unpack(std::string_view data, Coding coding, size_t most, Text& out);
Turns pack(std::vector<std::string_view> parts, Coding coding, Text& out);

}  // namespace sluice::serving
