#include "serving/http/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "serving/core/trace.h"
#include "serving/http/compression.h"
#include "serving/http/infer_json.h"
#include "serving/http/request_check.h"
#include "serving/http/routes.h"

namespace sluice::serving {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

using Parser = http::request_parser<http::buffer_body>;
using Fields = http::request_header<>;
constexpr size_t kHeader = size_t{16} << 10;
constexpr size_t kMostChunks = 65536;
constexpr size_t kSkipped = size_t{64} << 10;

std::string text_of(beast::string_view view) { return {view.data(), view.size()}; }

struct Written {
  std::string head, json;
  std::vector<Tensor> tensors;
};

}  // namespace

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, std::shared_ptr<HttpState> state)
      : stream_(std::move(socket)), state_(std::move(state)) {}

  void start() {
    asio::co_spawn(
        stream_.get_executor(), [self = shared_from_this()] { return self->run(); },
        [self = shared_from_this()](const std::exception_ptr&) { self->end(); });
  }

  void close(bool now) {
    asio::post(stream_.get_executor(), [self = shared_from_this(), now] {
      if (now && self->handle_ != nullptr) self->handle_->cancel();
      if (now || self->idle_) self->stream_.close();
    });
  }

 private:
  template <class T>
  using Task = asio::awaitable<T>;

  Task<void> run() {
    for (bool more = true; more;) {
      try {
        more = co_await serve_one();
      } catch (const boost::system::system_error&) {  // the client is gone, or too slow
        more = false;
      }
    }
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  }

  void end() {
    stream_.close();
    const std::lock_guard lock(state_->mutex);
    state_->connections.erase(shared_from_this());
    if (state_->connections.empty()) state_->none_left.notify_all();
  }

  // A request and its answer. False when the connection is to be closed.
  Task<bool> serve_one() {
    HttpReply refusal;
    try {
      if (!co_await read_header()) co_return false;
      check_body();
      keep_alive_ = parser_->get().keep_alive();
      route_ = route_of(text_of(parser_->get().method_string()), path(), state_->options.metrics_only);
      check_rights();
      co_await say_continue();
      if (route_.call == Call::kInfer) co_return co_await infer();
      const std::string body = co_await whole_body();
      co_return co_await write(co_await answer_of_call(body));
    } catch (const boost::system::system_error&) {
      throw;
    } catch (...) {
      refusal = reply_of_current();
    }
    if (keep_alive_) keep_alive_ = co_await skip_body();
    const bool more = co_await write(std::move(refusal));
    if (!more) co_await linger();
    co_return more;
  }

  // False where there is no further request.
  Task<bool> read_header() {
    parser_.emplace();
    left_ = 0;
    chunked_ = false;
    keep_alive_ = false;
    if (buffer_.size() == 0) {
      if (state_->draining) co_return false;
      idle_ = true;
      stream_.expires_after(state_->options.idle_timeout);
      error_code error;
      const size_t n =
          co_await stream_.async_read_some(buffer_.prepare(4096), redirect_error(asio::use_awaitable, error));
      idle_ = false;
      if (error) co_return false;
      buffer_.commit(n);
    }
    received_ = Clock::now();
    stream_.expires_after(state_->options.header_timeout);
    const std::string_view raw = co_await header_text();
    if (raw.empty()) co_return false;
    check_raw_header(raw);
    parser_->header_limit(kHeader);
    parser_->body_limit(state_->options.max_input);
    error_code error;
    parser_->put(asio::buffer(raw.data(), raw.size()), error);
    buffer_.consume(raw.size());
    if (error == http::error::body_limit) throw too_large();
    if (error || !parser_->is_header_done())
      throw HttpError(400, "request: its header cannot be read: " + error.message());
    co_return true;
  }

  // Everything up to the empty line, in the buffer. Nothing when the client goes before.
  Task<std::string_view> header_text() {
    const std::string_view end = "\r\n\r\n";
    for (size_t searched = 0;;) {
      const std::string_view text(static_cast<const char*>(buffer_.data().data()), buffer_.size());
      const size_t found = text.find(end, searched);
      if (found != std::string_view::npos) co_return text.substr(0, found + end.size());
      if (text.size() >= kHeader)
        throw HttpError(431, fmt::format("request: its header has more than {} bytes", kHeader));
      searched = text.size() < end.size() ? 0 : text.size() - end.size() + 1;
      error_code error;
      const size_t piece = std::min<size_t>(4096, kHeader - text.size());
      const size_t n =
          co_await stream_.async_read_some(buffer_.prepare(piece), redirect_error(asio::use_awaitable, error));
      if (error == beast::error::timeout) throw HttpError(408, "request: its header did not come in time");
      if (error) co_return std::string_view();
      buffer_.commit(n);
    }
  }

  std::string_view path() const {
    const beast::string_view target = parser_->get().target();
    std::string_view path(target.data(), target.size());
    path = path.substr(0, path.find('?'));
    const std::string& base = state_->options.base_path;
    if (base.empty()) return path;
    if (!path.starts_with(base)) throw HttpError(404, "Not Found");
    return path.substr(base.size());
  }

  HttpError too_large() const {
    return {413,
            fmt::format("request: its body has more than the {} bytes that are allowed", state_->options.max_input)};
  }

  void check_rights() const {
    if (!route_.changes) return;
    const HttpOptions& o = state_->options;
    if (!o.management) throw Error(Code::kForbidden, "management: this server does not take such calls");
    if (o.management_token.empty()) return;
    if (!same_secret(text_of(parser_->get()[http::field::authorization]), "Bearer " + o.management_token))
      throw HttpError(401, "management: the request needs the token, as 'Authorization: Bearer TOKEN'");
  }

  // What the header says of the body.
  void check_body() {
    const Parser& parser = *parser_;
    const Fields& fields = parser.get();
    const auto values = [&](beast::string_view name) {
      std::vector<std::string> found;
      const auto range = fields.equal_range(name);
      for (auto it = range.first; it != range.second; ++it) found.push_back(text_of(it->value()));
      return found;
    };
    check_framing(fields.version(), values("Host"), values("Transfer-Encoding"), values("Content-Length"));
    chunked_ = parser.chunked();
    left_ = chunked_ ? 0 : parser.content_length().value_or(0);
    if (left_ > state_->options.max_input) throw too_large();
    coding_ = coding_of(text_of(fields[http::field::content_encoding]));
    const auto lengths = values("Inference-Header-Content-Length");
    head_length_ = head_length_of(lengths);
  }

  Task<void> say_continue() {
    const beast::string_view expect = parser_->get()[http::field::expect];
    if (expect.empty()) co_return;
    if (!beast::iequals(expect, "100-continue")) throw HttpError(417, "request: Expect: only 100-continue is known");
    if (left_ > 0 || chunked_)
      co_await asio::async_write(stream_, asio::buffer("HTTP/1.1 100 Continue\r\n\r\n", 25), asio::use_awaitable);
  }

  // The next `n` bytes of a body with a length, straight to where they belong.
  Task<void> read(void* to, size_t n) {
    char* out = static_cast<char*>(to);
    const size_t there = std::min(n, buffer_.size());
    if (there > 0) std::memcpy(out, buffer_.data().data(), there);
    buffer_.consume(there);
    left_ -= there;
    for (size_t done = there; done < n;) {
      expire_body();
      const size_t got = co_await stream_.async_read_some(asio::buffer(out + done, n - done), asio::use_awaitable);
      done += got;
      left_ -= got;
    }
  }

  void begin_body() {
    body_deadline_ = std::chrono::steady_clock::now() + state_->options.body_timeout +
                     std::chrono::milliseconds(std::max<uint64_t>(left_, 1) / 10);
  }
  void expire_body() {
    const auto now = std::chrono::steady_clock::now();
    stream_.expires_at(std::min(now + state_->options.body_timeout, body_deadline_));
  }

  Task<std::string> chunked_body() {
    std::string body;
    size_t chunks = 0;
    auto count = [&](uint64_t size, beast::string_view, error_code& error) {
      if (++chunks > kMostChunks || size > state_->options.max_input) error = http::error::body_limit;
    };
    parser_->on_chunk_header(count);
    std::vector<char> piece(size_t{64} << 10);
    body_deadline_ = std::chrono::steady_clock::now() + state_->options.body_timeout * 4;
    while (!parser_->is_done()) {
      parser_->get().body().data = piece.data();
      parser_->get().body().size = piece.size();
      expire_body();
      error_code error;
      co_await http::async_read_some(stream_, buffer_, *parser_, redirect_error(asio::use_awaitable, error));
      if (error == http::error::need_buffer) error = {};
      if (error == http::error::body_limit) throw too_large();
      if (error && error.category() == http::make_error_code(http::error::bad_chunk).category() &&
          error != http::error::partial_message && error != http::error::end_of_stream)
        throw HttpError(400, "request: its chunks cannot be read: " + error.message());
      if (error) throw boost::system::system_error(error);
      body.append(piece.data(), piece.size() - parser_->get().body().size);
      if (body.size() > state_->options.max_input) throw too_large();
    }
    chunked_ = false;
    co_return body;
  }

  // What was refused before its body was read leaves that in the way of the next request. False where it is too much,
  // or may never come.
  Task<bool> skip_body() {
    if (chunked_ || left_ > kSkipped || (left_ > 0 && !parser_->get()[http::field::expect].empty())) co_return false;
    std::vector<char> away(left_);
    if (left_ > 0) begin_body();
    co_await read(away.data(), left_);
    co_return true;
  }

  Task<std::string> whole_body() {
    std::string body;
    if (chunked_) {
      body = co_await chunked_body();
    } else {
      begin_body();
      while (left_ > 0) {  // memory as the bytes come
        const size_t had = body.size(), piece = std::min<uint64_t>(left_, size_t{1} << 20);
        body.resize(had + piece);
        co_await read(body.data() + had, piece);
      }
    }
    if (coding_ != Coding::kNone) body = unpack(body, coding_, state_->options.max_input);
    co_return body;
  }

  Task<HttpReply> answer_of_call(const std::string& body) {
    if (!route_.slow) co_return answer(state_->server, route_, body);
    co_return co_await asio::co_spawn(
        state_->workers, [this, &body]() -> Task<HttpReply> { co_return answer(state_->server, route_, body); },
        asio::use_awaitable);
  }

  // Reads the request's tensors to where they will be read from.
  Task<InferHead> read_infer() {
    const InferLimits limits{state_->options.max_input};
    Server& server = state_->server;
    if (chunked_ || coding_ != Coding::kNone) {
      const std::string body = co_await whole_body();
      const size_t length = checked_head_length(body.size());
      InferHead head;
      size_t offset = 0;
      if (head_length_ == 0) {
        RawInput raw = raw_input(body.size());
        head = std::move(raw.head);
        offset = raw.offset;
      } else {
        head = parse_head({body.data(), length}, server, state_->buffers, limits);
      }
      check_binary(head, body.size() - length);
      const char* from = body.data() + length;
      for (size_t i = 0; i < head.binary.size(); ++i) {
        if (head.binary[i] > 0)
          std::memcpy(static_cast<char*>(head.request.inputs[i].data.get()) + offset, from, head.binary[i]);
        from += head.binary[i];
      }
      co_return head;
    }
    begin_body();
    const size_t length = checked_head_length(left_);
    InferHead head;
    size_t offset = 0;
    if (head_length_ == 0) {
      RawInput raw = raw_input(left_);
      head = std::move(raw.head);
      offset = raw.offset;
    } else {
      std::string text;
      while (text.size() < length) {
        const size_t had = text.size(), piece = std::min(length - had, size_t{1} << 20);
        text.resize(had + piece);
        co_await read(text.data() + had, piece);
      }
      head = parse_head(text, server, state_->buffers, limits);
    }
    check_binary(head, left_);
    for (size_t i = 0; i < head.binary.size(); ++i)
      co_await read(static_cast<char*>(head.request.inputs[i].data.get()) + offset, head.binary[i]);
    co_return head;
  }

  size_t checked_head_length(uint64_t body) const {
    if (!head_length_) return body;
    if (*head_length_ > body)
      throw HttpError(
          400, fmt::format("request: Inference-Header-Content-Length: {}; the body has {} bytes", *head_length_, body));
    return *head_length_;
  }
  static void check_binary(const InferHead& head, uint64_t bytes) {
    if (head.binary_bytes() != bytes)
      throw HttpError(400, fmt::format("infer: {} bytes follow the JSON; its inputs have {} bytes of binary data",
                                       bytes, head.binary_bytes()));
  }
  RawInput raw_input(size_t bytes) const {
    const auto metadata = state_->server.model_metadata(route_.model, route_.version);
    const auto config = state_->server.model_config(route_.model, route_.version);
    return raw_head(metadata, config.max_batch_size() > 0, bytes, state_->buffers);
  }

  Task<bool> infer() {
    InferHead head = co_await read_infer();
    head.request.model = route_.model;
    head.request.version = route_.version;
    head.request.received = received_;
    head.request.read = Clock::now();
    const Coding coding = accepted_coding(text_of(parser_->get()[http::field::accept_encoding]));
    std::optional<InferResponse> response = co_await ask(std::move(head.request));
    if (!response) co_return false;
    const std::shared_ptr<RequestTrace> trace = std::move(response->trace);
    if (trace != nullptr) trace->stamp(Stamp::kSendStart);
    bool more = false;
    HttpReply refusal;
    std::optional<InferAnswer> answer;
    try {
      if (response->error) throw *response->error;
      answer = answer_of(head.form, *response);
    } catch (...) {
      refusal = reply_of_current();
    }
    if (answer)
      more = co_await write_answer(std::move(*answer), coding);
    else
      more = co_await write(std::move(refusal));
    if (trace != nullptr) trace->stamp(Stamp::kSendEnd);
    co_return more;
  }

  // What an engine's thread leaves for the coroutine.
  struct Waiting {
    explicit Waiting(const beast::tcp_stream::executor_type& executor) : ready(executor, Clock::time_point::max()) {}
    asio::steady_timer ready;
    std::optional<InferResponse> response;
    bool several = false;
    bool gone = false;  // the client
  };

  // Nothing when the client has gone meanwhile.
  Task<std::optional<InferResponse>> ask(InferRequest request) {
    const auto waiting = std::make_shared<Waiting>(stream_.get_executor());
    stream_.expires_never();
    handle_ = state_->server.infer(
        std::move(request), [self = shared_from_this(), waiting](InferResponse response, bool last) {
          asio::post(self->stream_.get_executor(), [waiting, response = std::move(response), last]() mutable {
            if (!last) waiting->several = true;
            if (!last) return;
            waiting->response = std::move(response);
            waiting->ready.cancel();
          });
        });
    if (buffer_.size() == 0) watch(waiting);
    while (!waiting->response) {
      error_code ignored;
      co_await waiting->ready.async_wait(redirect_error(asio::use_awaitable, ignored));
    }
    handle_ = nullptr;
    error_code ignored;
    if (stream_.socket().is_open()) stream_.socket().cancel(ignored);  // the watch
    if (waiting->gone) co_return std::nullopt;
    if (waiting->several)
      waiting->response->error = Error(Code::kUnsupported,
                                       "infer: this model gives several responses to a request; ask for "
                                       "them over gRPC, by ModelStreamInfer");
    co_return std::move(waiting->response);
  }

  // Cancels the request when the client closes the connection.
  void watch(const std::shared_ptr<Waiting>& waiting) {
    stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this(), waiting](error_code error) {
      if (error || waiting->response) return;
      char c = 0;
      const ssize_t n = ::recv(self->stream_.socket().native_handle(), &c, 1, MSG_PEEK | MSG_DONTWAIT);
      if (n > 0) return;                                                              // its next request
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return self->watch(waiting);  // woken for nothing
      waiting->gone = true;
      if (self->handle_ != nullptr) self->handle_->cancel();
    });
  }

  Task<bool> write(HttpReply reply) {
    Written out;
    out.json = std::move(reply.body);
    out.head = head_text(reply.status, reply.type, out.json.size(), reply.headers);
    return send(std::move(out));
  }

  Task<bool> write_answer(InferAnswer answer, Coding coding) {
    std::vector<std::pair<std::string, std::string>> headers;
    const char* const type = answer.has_binary ? "application/octet-stream" : "application/json";
    if (answer.has_binary) headers.emplace_back("Inference-Header-Content-Length", std::to_string(answer.json.size()));
    Written out;
    if (coding != Coding::kNone) {
      std::string whole = std::move(answer.json);
      for (const Tensor& tensor : answer.binary)
        whole.append(static_cast<const char*>(tensor.data.get()), tensor.bytes);
      out.json = pack(whole, coding);
      headers.emplace_back("Content-Encoding", coding_name(coding));
    } else {
      out.json = std::move(answer.json);
      out.tensors = std::move(answer.binary);
    }
    size_t bytes = out.json.size();
    for (const Tensor& tensor : out.tensors) bytes += tensor.bytes;
    out.head = head_text(200, type, bytes, headers);
    return send(std::move(out));
  }

  std::string head_text(int status, const std::string& type, size_t bytes,
                        const std::vector<std::pair<std::string, std::string>>& headers) {
    if (state_->draining) keep_alive_ = false;
    const auto reason = http::obsolete_reason(static_cast<http::status>(status));
    std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n", status,
                                   text_of(reason), type, bytes);
    if (status == 401) head += "WWW-Authenticate: Bearer\r\n";
    if (status == 501 && coding_ == Coding::kNone) head += "Accept-Encoding: gzip, deflate\r\n";
    for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
    head += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return head;
  }

  Task<bool> send(Written out) {
    std::vector<asio::const_buffer> parts = {asio::buffer(out.head), asio::buffer(out.json)};
    size_t bytes = out.json.size();
    for (const Tensor& tensor : out.tensors) {
      parts.push_back(asio::buffer(tensor.data.get(), tensor.bytes));
      bytes += tensor.bytes;
    }
    stream_.expires_after(state_->options.response_timeout + std::chrono::milliseconds(bytes / 10));
    co_await asio::async_write(stream_, parts, asio::use_awaitable);
    co_return keep_alive_;
  }

  // Lets the client read the answer before the connection is reset over what it still sends.
  Task<void> linger() {
    error_code error;
    stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    std::vector<char> away(size_t{16} << 10);
    stream_.expires_after(std::chrono::seconds(2));
    for (size_t bytes = 0; !error && bytes < size_t{8} << 20;)
      bytes += co_await stream_.async_read_some(asio::buffer(away), redirect_error(asio::use_awaitable, error));
  }

  beast::tcp_stream stream_;
  const std::shared_ptr<HttpState> state_;
  beast::flat_buffer buffer_{kHeader};
  std::optional<Parser> parser_;
  Route route_;
  Coding coding_ = Coding::kNone;
  std::optional<uint64_t> head_length_;  // of the JSON in a body
  uint64_t left_ = 0;                    // of the body, to be read
  bool chunked_ = false;                 // and not read to its end
  bool keep_alive_ = false, idle_ = false;
  Clock::time_point received_;
  std::chrono::steady_clock::time_point body_deadline_;
  std::shared_ptr<RequestHandle> handle_;
};

void serve_connection(tcp::socket socket, const std::shared_ptr<HttpState>& state) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const auto connection = std::make_shared<Connection>(std::move(socket), state);
  {
    const std::lock_guard lock(state->mutex);
    if (static_cast<int>(state->connections.size()) >= state->options.max_connections) return;  // closes it
    state->connections.insert(connection);
  }
  connection->start();
}

void close_connection(const std::shared_ptr<Connection>& connection, bool now) { connection->close(now); }

}  // namespace sluice::serving
