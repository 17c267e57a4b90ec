#include "tools/sluice_perf/http_response.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <stdexcept>

namespace sluice::perf {

namespace {

constexpr size_t kMostHead = 64 << 10;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

template <class T>
T number_of(std::string_view text, int base, const char* what) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end == text.data()) throw std::runtime_error(std::string("the answer has no ") + what);
  return value;
}

}  // namespace

void HttpResponse::take(std::string_view bytes) {
  if (keep_body_) body_ += bytes;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {  // eight bytes at a time: bodies may be large
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    hash_ = (hash_ ^ word) * 1099511628211ull;
    hash_ ^= hash_ >> 29u;
  }
  for (; i < bytes.size(); ++i) hash_ = (hash_ ^ static_cast<unsigned char>(bytes[i])) * 1099511628211ull;
}

void HttpResponse::header(std::string_view name, std::string_view value) {
  if (same(name, "content-length")) {
    left_ = number_of<uint64_t>(value, 10, "number in its Content-Length");
    sized_ = true;
  } else if (same(name, "transfer-encoding")) {
    chunked_ = same(value, "chunked");
  } else if (same(name, "connection")) {
    keep_alive_ = !same(value, "close");
  }
}

void HttpResponse::parse_head() {
  std::string_view rest = line_;
  const size_t end = rest.find("\r\n");
  const std::string_view first = rest.substr(0, end);
  if (!first.starts_with("HTTP/1.") || first.size() < 12) throw std::runtime_error("the answer is not HTTP/1.1");
  keep_alive_ = first[7] == '1';
  status_ = number_of<int>(first.substr(9, 3), 10, "status");
  rest.remove_prefix(end + 2);
  while (!rest.starts_with("\r\n")) {
    const size_t line = rest.find("\r\n"), colon = rest.find(':');
    if (colon < line) header(rest.substr(0, colon), trimmed(rest.substr(colon + 1, line - colon - 1)));
    rest.remove_prefix(line + 2);
  }
  line_.clear();
  if (status_ == 100) {
    state_ = State::kHead;  // the answer proper follows
  } else if (chunked_) {
    state_ = State::kChunkSize;
  } else if (status_ == 204 || status_ == 304 || (sized_ && left_ == 0)) {
    state_ = State::kDone;
  } else {
    state_ = sized_ ? State::kBody : State::kUntilClose;
  }
}

size_t HttpResponse::feed_head(std::string_view bytes) {
  const size_t before = line_.size();
  line_ += bytes.substr(0, kMostHead);
  const size_t end = line_.find("\r\n\r\n", before < 3 ? 0 : before - 3);
  if (end == std::string::npos) {
    if (line_.size() >= kMostHead) throw std::runtime_error("the answer's head is too long");
    return std::min(bytes.size(), kMostHead);
  }
  const size_t used = end + 4 - before;
  line_.resize(end + 4);
  parse_head();
  return used;
}

// A line between chunks.
size_t HttpResponse::feed_line(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  line_ += bytes.substr(0, end);
  if (end == std::string_view::npos) return bytes.size();
  if (state_ == State::kChunkSize) {
    left_ = number_of<uint64_t>(line_, 16, "size of a chunk");
    state_ = left_ == 0 ? State::kTrailer : State::kChunk;
  } else if (state_ == State::kChunkEnd) {
    state_ = State::kChunkSize;
  } else if (trimmed(line_).empty()) {
    state_ = State::kDone;
  }
  line_.clear();
  return end + 1;
}

size_t HttpResponse::feed(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size() && state_ != State::kDone) {
    const std::string_view rest = bytes.substr(used);
    if (state_ == State::kHead) {
      used += feed_head(rest);
    } else if (state_ == State::kUntilClose) {
      take(rest);
      used = bytes.size();
    } else if (state_ == State::kBody || state_ == State::kChunk) {
      const size_t n = std::min<uint64_t>(left_, rest.size());
      take(rest.substr(0, n));
      used += n;
      left_ -= n;
      if (left_ == 0) state_ = state_ == State::kBody ? State::kDone : State::kChunkEnd;
    } else {
      used += feed_line(rest);
    }
  }
  return used;
}

bool HttpResponse::finish() {
  if (state_ != State::kUntilClose) return state_ == State::kDone;
  keep_alive_ = false;
  state_ = State::kDone;
  return true;
}

}  // namespace sluice::perf
