#pragma once
// Requests of one connection, read piece by piece: the header, checked, then as much of the body as somebody has room
// for. No memory is taken for what has been announced and has not come. Only for the sources of this folder. A failure
// of the network is thrown as boost::system::system_error.
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <string>

#include "serving/core/buffers.h"
#include "serving/core/request.h"
#include "serving/core/text.h"
#include "serving/http/client_stream.h"
#include "serving/http/compression.h"
#include "serving/http/http_server.h"
#include "serving/http/infer_json.h"
#include "serving/http/request_head.h"
#include "serving/http/routes.h"

namespace sluice::serving {

inline std::string text_of(boost::beast::string_view view) { return {view.data(), view.size()}; }

class RequestReader {
 public:
  template <class T>
  using Task = boost::asio::awaitable<T>;
  using Parser = RequestHead::Parser;
  using Fields = boost::beast::http::request_header<>;

  RequestReader(boost::asio::ip::tcp::socket socket, TlsContext* tls, const HttpOptions& options,
                std::shared_ptr<MemoryBudget> memory, const std::atomic<bool>& draining)
      : stream_(std::move(socket), tls), options_(options), draining_(draining), budget_(std::move(memory)) {}

  // The next request's header, which must begin within `patience`. False where there is none. Throws HttpError for one
  // after which the connection cannot go on.
  Task<bool> next(std::chrono::milliseconds patience);
  const Fields& header() const { return parser_->get(); }
  std::string field(boost::beast::http::field name) const;
  bool keeps_alive() const { return parser_->get().keep_alive(); }
  uint64_t left() const { return left_; }    // of a body with a length, to be read
  bool chunked() const { return chunked_; }  // and not read to its end
  Coding coding() const { return coding_; }
  std::optional<uint64_t> head_length() const { return head_length_; }  // of the JSON in the body
  Clock::time_point received() const { return received_; }              // its first byte
  bool idle() const { return idle_; }                                   // waits for a request
  bool ahead() const { return buffer_.size() > 0; }                     // has bytes of the next request
  // The share in which the request counts, from its body to its answer. Another with the next one.
  const MemoryPtr& memory() const { return memory_; }

  // Tells a client that waits for it to send the body.
  Task<void> say_continue();
  // The next `n` bytes of a body with a length, straight to where they belong: from `offset` on.
  Task<void> read(BufferPool::Arriving& to, size_t offset, size_t n);
  // All of it, as it is packed.
  Task<Text> whole_body();
  // The next `n` bytes of it.
  Task<Text> text(size_t n);
  // The body of a request that was refused before it was read is in the way of the next request. False where it is too
  // much, or may never come.
  Task<bool> skip_body();
  // Lets the client read the answer before the connection is reset over what it still sends.
  Task<void> linger();

  ClientStream& stream() { return stream_; }

 private:
  // Everything up to the empty line, in the buffer. Nothing when the client goes before.
  Task<std::string_view> header_text();
  void expire_body();
  // Waits for bytes of the body, in memory that the connection has.
  Task<void> wait_for_bytes();
  size_t take_buffered(char* to, size_t n);
  Task<Text> chunked_body();
  HttpError too_large() const;

  ClientStream stream_;
  const HttpOptions& options_;
  const std::atomic<bool>& draining_;
  boost::beast::flat_buffer buffer_{size_t{16} << 10};  // no header is longer
  std::optional<Parser> parser_;
  uint64_t left_ = 0;
  bool chunked_ = false, idle_ = false;
  Coding coding_ = Coding::kNone;
  const std::shared_ptr<MemoryBudget> budget_;
  MemoryPtr memory_;
  std::optional<uint64_t> head_length_;
  Clock::time_point received_;
  std::chrono::steady_clock::time_point body_deadline_;
};

}  // namespace sluice::serving
