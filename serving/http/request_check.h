#pragma once
// Checks a request's header beyond what Beast's parser asks: where two readers could take one request for two, or the
// other way round, it is refused. Each throws HttpError.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::serving {

// The header's bytes: no line that goes on in the next one, no bare line feed, no space before a colon.
void check_raw_header(std::string_view raw);
// `version`: 11 for HTTP/1.1; the others: all values of these fields.
void check_framing(unsigned version, const std::vector<std::string>& hosts,
                   const std::vector<std::string>& transfer_encodings, const std::vector<std::string>& content_lengths);
// The length of the JSON at the begin of a body: decimal digits, once; nothing where there is none.
std::optional<uint64_t> head_length_of(const std::vector<std::string>& values);

}  // namespace sluice::serving
