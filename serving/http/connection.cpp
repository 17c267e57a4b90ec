#include "serving/http/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <functional>

#include "serving/core/secret.h"
#include "serving/core/trace.h"
#include "serving/http/infer_json.h"
#include "serving/http/named_json.h"
#include "serving/http/presence.h"
#include "serving/http/request_check.h"
#include "serving/http/request_reader.h"
#include "serving/http/response_head.h"
#include "serving/http/routes.h"

namespace sluice::serving {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr size_t kLongJson = size_t{256} << 10;  // which takes some hundred microseconds to parse

struct Written {
  std::string head, json;
  std::vector<Tensor> tensors;
};

}  // namespace

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, std::shared_ptr<HttpState> state)
      : state_(std::move(state)),
        reader_(std::move(socket), state_->tls.get(), state_->options, state_->memory, state_->draining) {}

  void start() {
    asio::co_spawn(
        stream().get_executor(), [self = shared_from_this()] { return self->run(); },
        [self = shared_from_this()](const std::exception_ptr&) { self->end(); });
  }

  void close(bool now) {
    asio::post(stream().get_executor(), [self = shared_from_this(), now] {
      if (now && self->handle_ != nullptr) self->handle_->cancel();
      if (now || self->reader_.idle()) self->stream().close();
    });
  }

 private:
  template <class T>
  using Task = asio::awaitable<T>;

  Task<void> run() {
    bool more = co_await stream().greet(state_->options.header_timeout);
    while (more) {
      try {
        more = co_await serve_one();
      } catch (const boost::system::system_error&) {  // the client is gone, or too slow
        more = false;
      }
    }
    co_await stream().say_goodbye();
    error_code ignored;
    stream().socket().shutdown(tcp::socket::shutdown_both, ignored);
  }

  void end() {
    stream().close();
    const std::lock_guard lock(state_->mutex);
    state_->connections.erase(shared_from_this());
    if (state_->connections.empty()) state_->none_left.notify_all();
  }

  // A request and its answer. False when the connection is to be closed.
  Task<bool> serve_one() {
    HttpReply refusal;
    try {
      keep_alive_ = false;
      route_ = {};
      handed_over_ = false;
      if (!co_await reader_.next()) co_return false;
      keep_alive_ = reader_.keeps_alive();
      route_ = route();
      check_rights();
      co_await reader_.say_continue();
      if (route_.call == Call::kInfer) co_return co_await infer();
      if (route_.call == Call::kPredict || route_.call == Call::kGenerate) co_return co_await infer_named();
      if (route_.call == Call::kGenerateStream) co_return co_await stream_events();
      const std::string body = co_await reader_.whole_body();
      co_return co_await write(
          co_await done_by(route_.slow, [this, &body] { return answer(state_->server, route_, body); }));
    } catch (const boost::system::system_error&) {
      throw;
    } catch (...) {
      refusal = reply_of_current();
    }
    if (!handed_over_) count_refusal(refusal.status);
    if (keep_alive_) keep_alive_ = co_await reader_.skip_body();
    const bool more = co_await write(std::move(refusal));
    if (!more) co_await reader_.linger();
    co_return more;
  }

  Route route() const {
    return route_of(text_of(reader_.header().method_string()), path(), state_->options.metrics_only);
  }

  // Of a request whose header was refused the model is known, too, where its first line could be read.
  void count_refusal(int status) const {
    try {
      const Route asked = route();
      if (api_of(asked.call) == Api::kInference)
        state_->server.refused(asked.model, asked.version, code_of(status), reader_.received());
    } catch (const HttpError&) {  // it asks for nothing
    }
  }

  std::string_view path() const {
    const beast::string_view target = reader_.header().target();
    std::string_view path = path_of({target.data(), target.size()});
    const std::string& base = state_->options.base_path;
    if (base.empty()) return path;
    if (!path.starts_with(base)) throw HttpError(404, "Not Found");
    return path.substr(base.size());
  }

  void check_rights() const {
    const HttpOptions& o = state_->options;
    if (const auto api = api_of(route_.call))
      check_restriction(o.restrictions, *api, "", [this](const auto& name) { return text_of(reader_.header()[name]); });
    if (!route_.changes) return;
    if (!o.management) throw Error(Code::kForbidden, "management: this server does not take such calls");
    if (o.management_token.empty()) return;
    if (!is_bearer(reader_.field(http::field::authorization), o.management_token))
      throw HttpError(401, "management: the request needs the token, as 'Authorization: Bearer TOKEN'");
  }

  // What `work` gives; where it takes long, other connections of this thread go on meanwhile.
  template <class Work>
  Task<std::invoke_result_t<Work>> done_by(bool is_long, Work work) {
    if (!is_long) co_return work();
    co_return co_await asio::co_spawn(
        state_->workers, [&work]() -> Task<std::invoke_result_t<Work>> { co_return work(); }, asio::use_awaitable);
  }

  // Reads the request's tensors to where they will be read from.
  Task<InferHead> read_infer() {
    const InferLimits limits{state_->options.max_input, &reader_.memory()};
    const bool whole = reader_.chunked() || reader_.coding() != Coding::kNone;  // it has to be read before it is known
    std::string body;
    if (whole) body = co_await reader_.whole_body();
    const uint64_t bytes = whole ? body.size() : reader_.left();
    const size_t length = checked_head_length(bytes);
    InferHead head;
    size_t offset = 0;
    if (reader_.head_length() == 0) {
      RawInput raw = raw_input(bytes);
      head = std::move(raw.head);
      offset = raw.offset;
    } else {
      std::string text;  // not by ?: with co_await, whose temporaries g++ 12 destroys twice
      if (whole)
        text = body.substr(0, length);
      else
        text = co_await reader_.text(length);
      head = co_await done_by(text.size() > kLongJson,
                              [&] { return parse_head(text, state_->server, state_->buffers, limits); });
    }
    check_binary(head, bytes - length);
    for (size_t i = 0, at = length; i < head.binary.size(); at += head.binary[i++]) {
      char* const to = static_cast<char*>(head.request.inputs[i].data.get()) + offset;
      if (!whole) {
        co_await reader_.read(to, head.binary[i]);
      } else if (head.binary[i] > 0) {
        reader_.memory().take(head.binary[i]);
        std::memcpy(to, body.data() + at, head.binary[i]);
      }
    }
    co_return head;
  }

  size_t checked_head_length(uint64_t body) const {
    const std::optional<uint64_t> length = reader_.head_length();
    if (!length) return body;
    if (*length > body)
      throw HttpError(
          400, fmt::format("request: Inference-Header-Content-Length: {}; the body has {} bytes", *length, body));
    return *length;
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

  using Form = std::function<InferAnswer(const InferResponse& response)>;

  Task<bool> infer() {
    InferHead head = co_await read_infer();
    Form form = [asked = std::move(head.form)](const InferResponse& response) { return answer_of(asked, response); };
    complete(head.request);
    co_return co_await run(std::move(head.request), std::move(form));
  }

  Task<bool> infer_named() {
    NamedRequest named = co_await read_named();
    Form form = [as = named.form](const InferResponse& response) {
      InferAnswer answer;
      answer.json = named_answer(as, response);
      return answer;
    };
    complete(named.request);
    co_return co_await run(std::move(named.request), std::move(form));
  }

  Task<NamedRequest> read_named() {
    const std::string body = co_await reader_.whole_body();
    const auto model = state_->server.model_metadata(route_.model, route_.version);
    const InferLimits limits{state_->options.max_input, &reader_.memory()};
    const auto read = route_.call == Call::kPredict ? predict_request : generate_request;
    NamedRequest named =
        co_await done_by(body.size() > kLongJson, [&] { return read(body, model, state_->buffers, limits); });
    named.request.transport = Transport::kHttp;
    co_return named;
  }

  void complete(InferRequest& request) const {
    request.model = route_.model;
    request.version = route_.version;
    request.received = reader_.received();
    request.read = Clock::now();
    request.trace_parent = text_of(reader_.header()["traceparent"]);
  }

  Task<bool> run(InferRequest request, Form form) {
    const Coding coding = accepted_coding(reader_.field(http::field::accept_encoding));
    std::optional<InferResponse> response = co_await ask(std::move(request));
    if (!response) co_return false;
    const std::shared_ptr<RequestTrace> trace = std::move(response->trace);
    if (trace != nullptr) trace->stamp(Stamp::kSendStart);
    bool more = false;
    HttpReply refusal;
    std::optional<InferAnswer> answer;
    try {
      if (response->error) throw *response->error;
      answer = form(*response);
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
  struct Waiting : Presence {
    explicit Waiting(const ClientStream::executor_type& executor) : ready(executor, Clock::time_point::max()) {}
    asio::steady_timer ready;
    std::deque<InferResponse> responses;
    bool gone = false;      // the client
    bool told = false;      // the beginning of the answer has been sent
    bool doubtful = false;  // whether the client is there is to be found out
  };
  static uint64_t bytes_of(const InferResponse& response) {
    uint64_t bytes = 0;
    for (const Tensor& output : response.outputs) bytes += output.bytes;
    return bytes;
  }

  // `in_parts`: responses that wait for the client to take others count as its memory. One that does not take them, and
  // has too much of it, loses the connection.
  std::shared_ptr<Waiting> begin(InferRequest request, bool in_parts = false) {
    const auto waiting = std::make_shared<Waiting>(stream().get_executor());
    handed_over_ = true;
    stream().expires_never();
    handle_ = state_->server.infer(
        std::move(request), [self = shared_from_this(), waiting, in_parts](InferResponse response, bool last) {
          // At once where this thread has run the step.
          asio::dispatch(self->stream().get_executor(),
                         [self, waiting, in_parts, last, response = std::move(response)]() mutable {
                           if (in_parts && !self->has_room(*waiting, bytes_of(response))) response.outputs.clear();
                           waiting->responses.push_back(std::move(response));
                           waiting->over |= last;
                           waiting->ready.cancel();
                         });
        });
    if (!waiting->over && !reader_.ahead()) watch_for(*waiting, waiting);
    return waiting;
  }
  // Cancels the request when the client closes the connection. Clients of HTTP/1.0 pass over nothing, and are answered.
  void watch_for(Waiting& of, std::shared_ptr<Presence> presence) {
    of.can_be_asked = reader_.header().version() != 10;
    of.on_gone = [this, &of] {
      of.gone = true;
      if (handle_ != nullptr) handle_->cancel();
    };
    of.on_half_end = [this, &of] {
      keep_alive_ = false;
      of.doubtful = of.can_be_asked;
      of.ready.cancel();
    };
    watch(shared_from_this(), stream(), std::move(presence));
  }
  bool has_room(Waiting& waiting, uint64_t bytes) {
    if (waiting.gone) return false;
    try {
      reader_.memory().take(bytes);
      return true;
    } catch (const Error&) {
      waiting.gone = true;
      if (handle_ != nullptr) handle_->cancel();
      stream().cancel();  // what is being sent
      return false;
    }
  }
  Task<void> wait(std::shared_ptr<Waiting> waiting, bool for_all) {
    while (for_all ? !waiting->over : waiting->responses.empty()) {
      if (std::exchange(waiting->doubtful, false)) {
        // A comment between events, or what stands before an answer.
        co_await send_text(waiting->told ? "3\r\n:\n\n\r\n" : "HTTP/1.1 100 Continue\r\n\r\n");
        continue;
      }
      error_code ignored;
      co_await waiting->ready.async_wait(redirect_error(asio::use_awaitable, ignored));
    }
  }
  void end_watch() {
    handle_ = nullptr;
    error_code ignored;
    if (stream().socket().is_open()) stream().socket().cancel(ignored);
  }

  // Nothing when the client has gone meanwhile.
  Task<std::optional<InferResponse>> ask(InferRequest request) {
    const std::shared_ptr<Waiting> waiting = begin(std::move(request));
    co_await wait(waiting, false);
    const bool several = !waiting->over;
    if (several && handle_ != nullptr) handle_->cancel();
    co_await wait(waiting, true);
    end_watch();
    if (waiting->gone) co_return std::nullopt;
    InferResponse response = std::move(waiting->responses.back());
    if (several || waiting->responses.size() > 1)
      response.error = Error(Code::kUnsupported,
                             "infer: this model gives several responses to a request; ask for them over gRPC, by "
                             "ModelStreamInfer, or by generate_stream");
    co_return response;
  }

  // Each response as it comes, as an event ("data: {..}"); an error is one, too. What is wrong with the request itself
  // is refused as elsewhere.
  Task<bool> stream_events() {
    if (reader_.header().version() == 10) throw HttpError(400, "generate_stream: HTTP/1.0 has no chunks; ask by 1.1");
    NamedRequest named = co_await read_named();
    complete(named.request);
    const NamedForm form = named.form;
    const std::shared_ptr<Waiting> waiting = begin(std::move(named.request), true);
    bool begun = false, gone = false;
    for (bool more = true; more;) {
      co_await wait(waiting, false);
      InferResponse response = std::move(waiting->responses.front());
      waiting->responses.pop_front();
      reader_.memory().give(bytes_of(response));
      more = !(waiting->over && waiting->responses.empty());
      if (gone || waiting->gone) {
        gone = true;
        continue;  // until the request is over
      }
      HttpReply reply;
      try {
        if (response.error) throw *response.error;
        reply.body = named_answer(form, response);
      } catch (...) {
        reply = reply_of_current();
      }
      if (!begun && reply.status != 200 && !more) {
        end_watch();
        co_return co_await write(std::move(reply));
      }
      if (state_->draining && !begun) keep_alive_ = false;
      std::string text = begun ? "" : events_head(keep_alive_);
      const std::string event = "data: " + reply.body + "\n\n";
      text += fmt::format("{:x}\r\n{}\r\n{}", event.size(), event, more ? "" : "0\r\n\r\n");
      begun = waiting->told = true;
      gone = !co_await send_text(std::move(text));
      if (gone && handle_ != nullptr) handle_->cancel();
    }
    end_watch();
    reader_.memory().clear();
    co_return !gone && keep_alive_;
  }
  // False when the client does not take it.
  Task<bool> send_text(std::string text) {
    stream().expires_after(state_->options.response_timeout);
    error_code error;
    co_await asio::async_write(stream(), asio::buffer(text), redirect_error(asio::use_awaitable, error));
    stream().expires_never();
    co_return !error;
  }

  Task<bool> write(HttpReply reply) {
    Written out;
    out.json = std::move(reply.body);
    out.head = head_of({reply.status, reply.type, out.json.size(), reply.headers});
    if (reader_.header().method() == http::verb::head) out.json.clear();
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
    out.head = head_of({200, type, bytes, headers});
    return send(std::move(out));
  }

  std::string head_of(ResponseHead head) {
    if (state_->draining) keep_alive_ = false;
    head.keep_alive = keep_alive_;
    return text_of(head);
  }

  Task<bool> send(Written out) {
    std::vector<asio::const_buffer> parts = {asio::buffer(out.head), asio::buffer(out.json)};
    size_t bytes = out.json.size();
    for (const Tensor& tensor : out.tensors) {
      parts.push_back(asio::buffer(tensor.data.get(), tensor.bytes));
      bytes += tensor.bytes;
    }
    stream().expires_after(state_->options.response_timeout + std::chrono::milliseconds(bytes / 10));
    co_await asio::async_write(stream(), parts, asio::use_awaitable);
    reader_.memory().clear();
    co_return keep_alive_;
  }

  ClientStream& stream() { return reader_.stream(); }

  const std::shared_ptr<HttpState> state_;
  RequestReader reader_;
  Route route_;
  bool keep_alive_ = false;
  bool handed_over_ = false;  // the server has the request, and counts it
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
