#include "serving/http/request_reader.h"

#include <fmt/format.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstring>

#include "serving/http/request_check.h"

namespace sluice::serving {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

namespace {

constexpr size_t kMostChunks = 65536;
constexpr size_t kSkipped = size_t{64} << 10;
constexpr size_t kPiece = size_t{16} << 10;
constexpr size_t kLongestRead = size_t{1} << 20;
constexpr size_t kKept = 4096;  // of the buffer, while the client is idle

}  // namespace

std::string RequestReader::field(http::field name) const { return text_of(parser_->get()[name]); }

RequestReader::Task<bool> RequestReader::next(std::chrono::milliseconds patience) {
  parser_.emplace();
  memory_ = std::make_shared<MemoryShare>(budget_, kMemoryOfInput * options_.max_input);
  left_ = 0;
  chunked_ = false;
  if (buffer_.size() == 0) {
    if (buffer_.capacity() > kKept) buffer_ = beast::flat_buffer(kLongestHead);
    if (draining_) co_return false;
    idle_ = true;
    stream_.expires_after(patience);
    error_code error;
    const size_t n =
        co_await stream_.async_read_some(buffer_.prepare(4096), redirect_error(asio::use_awaitable, error));
    idle_ = false;
    if (error) co_return false;
    buffer_.commit(n);
  }
  received_ = Clock::now();
  stream_.expires_after(options_.header_timeout);
  const std::string_view raw = co_await header_text();
  if (raw.empty()) co_return false;
  const RequestHead head = read_head(raw, options_.max_input, *parser_);
  buffer_.consume(raw.size());
  chunked_ = head.chunked;
  left_ = head.length;
  coding_ = head.coding;
  head_length_ = head.head_length;
  body_deadline_ = std::chrono::steady_clock::now() + options_.body_timeout * (chunked_ ? 4 : 1) +
                   std::chrono::milliseconds(left_ / 10);
  co_return true;
}

RequestReader::Task<std::string_view> RequestReader::header_text() {
  const std::string_view end = "\r\n\r\n";
  for (size_t searched = 0;;) {
    const std::string_view text(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    const size_t found = text.find(end, searched);
    if (found != std::string_view::npos) co_return text.substr(0, found + end.size());
    if (text.size() >= kLongestHead)
      throw HttpError(431, fmt::format("request: its header has more than {} bytes", kLongestHead));
    searched = text.size() < end.size() ? 0 : text.size() - end.size() + 1;
    error_code error;
    const size_t piece = std::min<size_t>(4096, kLongestHead - text.size());
    const size_t n =
        co_await stream_.async_read_some(buffer_.prepare(piece), redirect_error(asio::use_awaitable, error));
    if (error) co_return std::string_view();  // where it did not come in time, the stream has been closed
    buffer_.commit(n);
  }
}

HttpError RequestReader::too_large() const { return body_too_large(options_.max_input); }

RequestReader::Task<void> RequestReader::say_continue() {
  const beast::string_view expect = parser_->get()[http::field::expect];
  if (expect.empty()) co_return;
  if (!beast::iequals(expect, "100-continue")) throw HttpError(417, "request: Expect: only 100-continue is known");
  if (left_ > 0 || chunked_)
    co_await asio::async_write(stream_, asio::buffer("HTTP/1.1 100 Continue\r\n\r\n", 25), asio::use_awaitable);
}

size_t RequestReader::take_buffered(char* to, size_t n) {
  const size_t there = std::min(n, buffer_.size());
  if (there > 0) std::memcpy(to, buffer_.data().data(), there);
  buffer_.consume(there);
  left_ -= there;
  return there;
}

RequestReader::Task<void> RequestReader::wait_for_bytes() {
  if (buffer_.size() > 0) co_return;
  expire_body();
  const size_t most = static_cast<size_t>(std::min<uint64_t>(kKept, left_));  // and none of the next request
  buffer_.commit(co_await stream_.async_read_some(buffer_.prepare(most), asio::use_awaitable));
}

RequestReader::Task<void> RequestReader::read(BufferPool::Arriving& to, size_t offset, size_t n) {
  char* const out = static_cast<char*>(to.data().get()) + offset;
  to.come(std::min(n, buffer_.size()));
  for (size_t done = take_buffered(out, n); done < n;) {
    expire_body();
    const size_t got = co_await stream_.async_read_some(asio::buffer(out + done, std::min(n - done, kLongestRead)),
                                                        asio::use_awaitable);
    done += got;
    left_ -= got;
    to.come(got);
  }
}

void RequestReader::expire_body() {
  const auto now = std::chrono::steady_clock::now();
  stream_.expires_at(std::min(now + options_.body_timeout, body_deadline_));
}

RequestReader::Task<Text> RequestReader::chunked_body() {
  Text body(memory_), piece(memory_);
  size_t chunks = 0;
  auto count = [&](uint64_t size, beast::string_view, error_code& error) {
    if (++chunks > kMostChunks || size > options_.max_input) error = http::error::body_limit;
  };
  parser_->on_chunk_header(count);
  while (!parser_->is_done()) {
    parser_->get().body().data = piece.data();
    parser_->get().body().size = piece.size();
    expire_body();
    error_code error;
    co_await http::async_read_some(stream_, buffer_, *parser_, redirect_error(asio::use_awaitable, error));
    const bool more = error == http::error::need_buffer;
    if (more) error = {};
    if (error == http::error::body_limit) throw too_large();
    if (error && error.category() == http::make_error_code(http::error::bad_chunk).category() &&
        error != http::error::partial_message && error != http::error::end_of_stream)
      throw HttpError(400, "request: its chunks cannot be read: " + error.message());
    if (error) throw boost::system::system_error(error);
    body.append(piece.data(), piece.size() - parser_->get().body().size);
    if (body.size() > options_.max_input) throw too_large();
    if (more && piece.empty()) piece.resize(kPiece);  // there is something now
  }
  chunked_ = false;
  co_return body;
}

RequestReader::Task<bool> RequestReader::skip_body() {
  if (chunked_ || left_ > kSkipped || (left_ > 0 && !parser_->get()[http::field::expect].empty())) co_return false;
  while (left_ > 0) {  // within what the connection has
    co_await wait_for_bytes();
    const size_t there = static_cast<size_t>(std::min<uint64_t>(left_, buffer_.size()));
    buffer_.consume(there);
    left_ -= there;
  }
  co_return true;
}

RequestReader::Task<Text> RequestReader::text(size_t n) {
  Text text(memory_);
  while (text.size() < n) {
    co_await wait_for_bytes();
    const size_t had = text.size(), most = std::max(kPiece, 2 * had);
    if (text.capacity() < n && text.capacity() - had < kPiece) text.reserve(std::min(n, most));
    text.resize(std::min({n, text.capacity(), had + std::max(kPiece, had)}));
    size_t done = had + take_buffered(text.data() + had, text.size() - had);
    while (done < text.size()) {
      expire_body();
      const size_t got =
          co_await stream_.async_read_some(asio::buffer(text.data() + done, text.size() - done), asio::use_awaitable);
      done += got;
      left_ -= got;
    }
  }
  co_return text;
}

RequestReader::Task<Text> RequestReader::whole_body() {
  Text body;
  if (chunked_) {
    body = co_await chunked_body();
  } else {
    body = co_await text(left_);
  }
  co_return body;
}

RequestReader::Task<void> RequestReader::linger() {
  error_code error;
  co_await stream_.say_goodbye();
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  stream_.expires_after(std::chrono::seconds(2));
  for (size_t bytes = 0; !error && bytes < size_t{8} << 20;) {
    buffer_.clear();
    bytes += co_await stream_.async_read_some(buffer_.prepare(kKept), redirect_error(asio::use_awaitable, error));
  }
}

}  // namespace sluice::serving
