#pragma once
// The header of a request, and what it says of the body. No network here.
#include <boost/beast/http.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

#include "serving/http/compression.h"
#include "serving/http/routes.h"

namespace sluice::serving {

inline constexpr size_t kLongestHead = size_t{16} << 10;

struct RequestHead {
  using Parser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;
  bool chunked = false;
  uint64_t length = 0;  // of the body; 0 where it comes in chunks
  Coding coding = Coding::kNone;
  std::optional<uint64_t> head_length;  // of the JSON in the body
};

// `raw`: everything up to the empty line, with it. Leaves the fields in `parser`, which is fresh, and goes on with the
// chunks. Throws HttpError for one after which it is not known where the next request begins.
RequestHead read_head(std::string_view raw, uint64_t max_input, RequestHead::Parser& parser);
HttpError body_too_large(uint64_t max_input);

}  // namespace sluice::serving
