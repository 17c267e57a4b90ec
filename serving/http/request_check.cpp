#include "serving/http/request_check.h"

#include <boost/beast/core/string.hpp>
#include <charconv>

#include "serving/http/routes.h"

namespace sluice::serving {

void check_raw_header(std::string_view raw) {
  constexpr size_t kMostLines = 256;  // each takes memory of its own
  size_t lines = 0;
  for (size_t at = 0; at < raw.size();) {
    if (++lines > kMostLines)
      throw HttpError(431, "request: its header has more than " + std::to_string(kMostLines) + " lines");
    const size_t end = raw.find('\n', at);
    if (end == std::string_view::npos) break;
    const std::string_view line = raw.substr(at, end - at);
    if (!line.ends_with('\r')) throw HttpError(400, "request: a line of its header ends with a line feed alone");
    if (at > 0 && (line[0] == ' ' || line[0] == '\t'))
      throw HttpError(400, "request: a line of its header goes on in the next one");
    if (at > 0 && line.size() > 1) {
      const size_t colon = line.find(':');
      if (colon == std::string_view::npos || colon == 0 || line[colon - 1] == ' ' || line[colon - 1] == '\t')
        throw HttpError(400, "request: a line of its header is no 'name: value'");
    }
    at = end + 1;
  }
}

void check_framing(unsigned version, const std::vector<std::string>& hosts,
                   const std::vector<std::string>& transfer_encodings,
                   const std::vector<std::string>& content_lengths) {
  if (version != 10 && version != 11) throw HttpError(505, "request: HTTP/1.0 and HTTP/1.1 are known");
  if (hosts.size() > 1 || (version == 11 && hosts.empty())) throw HttpError(400, "request: it must have one Host");
  if (content_lengths.size() > 1) throw HttpError(400, "request: it has several Content-Length");
  if (!content_lengths.empty() && content_lengths[0].find_first_not_of("0123456789") != std::string::npos)
    throw HttpError(400, "request: Content-Length must be digits alone");
  if (transfer_encodings.empty()) return;
  if (!content_lengths.empty()) throw HttpError(400, "request: both Transfer-Encoding and Content-Length");
  if (transfer_encodings.size() > 1 || !boost::beast::iequals(transfer_encodings[0], "chunked"))
    throw HttpError(501, "request: Transfer-Encoding; only 'chunked' is known");
  if (version == 10) throw HttpError(400, "request: HTTP/1.0 has no chunks");
}

std::optional<uint64_t> head_length_of(const std::vector<std::string>& values) {
  if (values.empty()) return std::nullopt;
  uint64_t length = 0;
  const std::string& text = values[0];
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (values.size() > 1 || text.empty() || error != std::errc() || end != text.data() + text.size())
    throw HttpError(400, "request: Inference-Header-Content-Length must be there once, with digits alone");
  return length;
}

}  // namespace sluice::serving
