#pragma once
// Reads answers of HTTP/1.1 from the bytes of a connection, as they come.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::perf {

class HttpResponse {
 public:
  explicit HttpResponse(bool keep_body) : keep_body_(keep_body) {}

  // Takes bytes; returns how many belong to this answer. Throws std::runtime_error for what is no answer of HTTP.
  size_t feed(std::string_view bytes);
  bool done() const { return state_ == State::kDone; }
  // The connection's end, which may be how the body ends. False when the answer is cut off by it.
  bool finish();

  int status() const { return status_; }
  bool keep_alive() const { return keep_alive_; }
  uint64_t hash() const { return hash_; }  // of the body
  std::string take_body() { return std::move(body_); }

 private:
  enum class State { kHead, kBody, kUntilClose, kChunkSize, kChunk, kChunkEnd, kTrailer, kDone };
  size_t feed_head(std::string_view bytes);
  size_t feed_line(std::string_view bytes);
  void parse_head();
  void header(std::string_view name, std::string_view value);
  void take(std::string_view bytes);

  State state_ = State::kHead;
  bool keep_body_, keep_alive_ = true, chunked_ = false, sized_ = false;
  int status_ = 0;
  uint64_t left_ = 0;
  uint64_t hash_ = 14695981039346656037ull;
  std::string line_, body_;  // the head, or a line between chunks
};

}  // namespace sluice::perf
