#include "serving/http/request_head.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "serving/http/request_check.h"

namespace sluice::serving {

namespace http = boost::beast::http;

HttpError body_too_large(uint64_t max_input) {
  return {413, fmt::format("request: its body has more than the {} bytes that are allowed", max_input)};
}

RequestHead read_head(std::string_view raw, uint64_t max_input, RequestHead::Parser& parser) {
  check_raw_header(raw);
  parser.header_limit(kLongestHead);
  parser.body_limit(max_input);
  boost::system::error_code error;
  parser.put(boost::asio::buffer(raw.data(), raw.size()), error);
  if (error == http::error::body_limit) throw body_too_large(max_input);
  if (error || !parser.is_header_done()) throw HttpError(400, "request: its header cannot be read: " + error.message());
  const http::request_header<>& fields = parser.get();
  const auto values = [&](boost::beast::string_view name) {
    std::vector<std::string> found;
    const auto range = fields.equal_range(name);
    for (auto it = range.first; it != range.second; ++it) found.emplace_back(it->value().data(), it->value().size());
    return found;
  };
  check_framing(fields.version(), values("Host"), values("Transfer-Encoding"), values("Content-Length"));
  RequestHead head;
  head.chunked = parser.chunked();
  head.length = head.chunked ? 0 : parser.content_length().value_or(0);
  if (head.length > max_input) throw body_too_large(max_input);
  const auto coding = fields[http::field::content_encoding];
  head.coding = coding_of({coding.data(), coding.size()});
  head.head_length = head_length_of(values("Inference-Header-Content-Length"));
  return head;
}

}  // namespace sluice::serving
