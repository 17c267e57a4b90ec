#include "tools/sluice_perf/http_response.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <cstring>
#include <stdexcept>

namespace sluice::perf {

namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr uint32_t kMostHead = 64 << 10;

}  // namespace

void HashedBody::value_type::mix() {
  hash = (hash ^ word) * 1099511628211ull;
  hash ^= hash >> 29u;
  word = 0;
  filled = 0;
}

void HashedBody::value_type::take(std::string_view bytes) {
  if (keep) text += bytes;
  while (!bytes.empty()) {  // eight bytes at a time: bodies may be large
    const size_t n = std::min(sizeof(word) - filled, bytes.size());
    if (n == sizeof(word))
      std::memcpy(&word, bytes.data(), sizeof(word));
    else
      std::memcpy(reinterpret_cast<char*>(&word) + filled, bytes.data(), n);
    bytes.remove_prefix(n);
    if ((filled += n) == sizeof(word)) mix();
  }
}

void HttpResponse::begin() {
  parser_.emplace();
  parser_->header_limit(kMostHead);
  parser_->body_limit(boost::none);
  parser_->eager(true);
  parser_->get().body().keep = keep_body_;
}

size_t HttpResponse::parse(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size() && !done()) {
    error_code error;
    used += parser_->put(boost::asio::buffer(bytes.data() + used, bytes.size() - used), error);
    if (error == http::error::need_more) break;
    if (error == http::error::header_limit) throw std::runtime_error("the answer's head is too long");
    if (error) throw std::runtime_error("the answer is not HTTP/1.1: " + error.message());
    if (done() && status() == 100) begin();  // the answer proper follows
  }
  return used;
}

size_t HttpResponse::feed(std::string_view bytes) {
  if (rest_.empty()) {
    const size_t used = parse(bytes);
    if (done()) return used;
    rest_ = bytes.substr(used);
    return bytes.size();
  }
  const size_t before = rest_.size();
  rest_ += bytes;
  const size_t used = parse(rest_);
  if (done()) return used - before;
  rest_.erase(0, used);
  return bytes.size();
}

bool HttpResponse::finish() {
  error_code error;
  if (!done()) parser_->put_eof(error);
  return !error && done();
}

uint64_t HttpResponse::hash() {
  HashedBody::value_type& body = parser_->get().body();
  if (body.filled > 0) body.mix();
  return body.hash;
}

}  // namespace sluice::perf
