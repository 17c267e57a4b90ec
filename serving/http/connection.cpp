#include "serving/http/connection.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <array>
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
#include <thread>

#include "serving/core/secret.h"
#include "serving/core/trace.h"
#include "serving/http/infer_json.h"
#include "serving/http/named_json.h"
#include "serving/http/presence.h"
#include "serving/http/request_bodies.h"
#include "serving/http/request_check.h"
#include "serving/http/response_head.h"
#include "serving/http/routes.h"

namespace sluice::serving {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// Work on more than this takes some hundred microseconds: writing tensors as JSON, packing a body.
constexpr size_t kLongTensors = size_t{16} << 10, kLongBody = size_t{64} << 10;
constexpr uint64_t kOfResponse = 512;                  // bytes, beside its tensors, which the server counts
constexpr size_t kSmallReply = 4096;                   // needs no count beside its connection
constexpr std::chrono::milliseconds kForHealth{1000};  // to ask, for who came in for that alone

// The allocator keeps what thousands of connections took in small pieces, unless it is asked.
void give_memory_back() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

bool is_health(Call call) { return call == Call::kLive || call == Call::kReady || call == Call::kModelReady; }

struct Written {
  std::string head;
  Text text;
  std::vector<Tensor> tensors;
};

}  // namespace

class Connection final : public Places::Seat, public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, std::shared_ptr<HttpState> state)
      : state_(std::move(state)),
        reader_(std::move(socket), state_->tls.get(), state_->options, state_->memory, state_->draining),
        bodies_(reader_, *state_) {}

  void start(Places::Kind kind) {
    kind_ = kind;
    asio::co_spawn(
        stream().get_executor(), [self = shared_from_this()] { return self->run(); },
        [self = shared_from_this()](const std::exception_ptr&) { self->end(); });
  }

  // Ends a connection for which there is no place.
  void refuse() {
    if (!stream().is_tls()) tell_no_place(stream().socket().native_handle());
    stream().close();
  }

  void close(bool now) override {
    asio::post(stream().get_executor(), [self = shared_from_this(), now] {
      if (now && self->handle_ != nullptr) self->handle_->cancel();
      if (now || self->reader_.idle()) self->stream().close();
    });
  }

  void close_half() override {
    asio::post(stream().get_executor(), [self = shared_from_this()] {
      if (!self->bodies_.whole()) self->stream().close();
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
    if (state_->places.leave(shared_from_this())) asio::post(state_->managers, give_memory_back);
  }

  // A request and its answer. False when the connection is to be closed.
  Task<bool> serve_one() {
    HttpReply refusal;
    try {
      keep_alive_ = false;
      route_ = {};
      handed_over_ = false;
      bodies_.begin();
      std::chrono::milliseconds patience = state_->options.idle_timeout;
      if (kind_ == Places::Kind::kHealth) patience = std::min(patience, kForHealth);
      state_->places.idle(*this);
      if (!co_await reader_.next(patience)) co_return false;
      if ((kind_ = state_->places.busy(*this)) == Places::Kind::kNone) co_return false;
      keep_alive_ = reader_.keeps_alive() && kind_ == Places::Kind::kOwn;
      route_ = route();
      check_rights();
      co_await reader_.say_continue();
      if (route_.call == Call::kInfer) co_return co_await infer();
      if (route_.call == Call::kPredict || route_.call == Call::kGenerate) co_return co_await infer_named();
      if (route_.call == Call::kGenerateStream) co_return co_await stream_events();
      const Text body = co_await bodies_.unpacked();
      co_return co_await write(co_await answer_of_call(body));
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
  // Counts for the model a request whose header was refused, too, where its first line could be read.
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
    if (kind_ == Places::Kind::kHealth && !is_health(route_.call))
      throw Error(Code::kUnavailable, "server: all connections are taken; ask again");
    const HttpOptions& o = state_->options;
    if (const auto api = api_of(route_.call))
      check_restriction(o.restrictions, *api, "", [this](const auto& name) { return text_of(reader_.header()[name]); });
    if (!route_.changes) return;
    if (!o.management) throw Error(Code::kForbidden, "management: this server does not take such calls");
    if (o.management_token.empty()) return;
    if (!is_bearer(reader_.field(http::field::authorization), o.management_token))
      throw HttpError(401, "management: the request needs the token, as 'Authorization: Bearer TOKEN'");
  }

  Task<HttpReply> answer_of_call(const Text& body) {
    const auto work = [this, &body] {
      HttpReply reply = answer(state_->server, route_, body, reader_.memory());
      const auto& more = state_->options.more_metrics;
      if (route_.call == Call::kMetrics && reply.status == 200 && more) reply.body += more();
      return reply;
    };
    if (route_.slow)
      co_return co_await asio::co_spawn(
          state_->managers, [&work]() -> Task<HttpReply> { co_return work(); }, asio::use_awaitable);
    co_return co_await state_->workers->run_if(body.size() > kLongJson, work);
  }

  Task<void> done_in(bool is_long, Turns turns) {
    if (!is_long)
      turns.finish();
    else
      co_await state_->workers->run(std::move(turns));
  }

  // Writes a response, whose text counts where `answer` says.
  using Form = std::function<Turns(const InferResponse& response, InferAnswer& answer)>;

  Task<bool> infer() {
    InferHead head = co_await bodies_.infer(route_);
    Form form = [asked = std::move(head.form)](const InferResponse& response, InferAnswer& answer) {
      return serving::write_answer(asked, response, answer);
    };
    complete(head.request);
    co_return co_await run(std::move(head.request), std::move(form));
  }

  Task<bool> infer_named() {
    NamedRequest named = co_await bodies_.named(route_);
    Form form = [as = named.form](const InferResponse& response, InferAnswer& answer) {
      return write_named(as, response, answer.json);
    };
    complete(named.request);
    co_return co_await run(std::move(named.request), std::move(form));
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
    std::optional<Written> written;
    try {
      if (response->error) throw *response->error;
      written = co_await written_answer(form, *response, coding);
    } catch (const boost::system::system_error&) {
      throw;
    } catch (...) {
      refusal = reply_of_current();
    }
    response.reset();
    if (written)
      more = co_await send(std::move(*written));
    else
      more = co_await write(std::move(refusal));
    if (trace != nullptr) trace->stamp(Stamp::kSendEnd);
    co_return more;
  }

  // The message that an engine's thread leaves for the coroutine.
  struct Waiting : Presence {
    explicit Waiting(const ClientStream::executor_type& executor) : ready(executor, Clock::time_point::max()) {}
    asio::steady_timer ready;
    std::deque<std::pair<InferResponse, Held>> responses;
    bool gone = false;      // the client
    bool told = false;      // the beginning of the answer has been sent
    bool doubtful = false;  // whether the client is there is to be found out
  };

  // A client that does not take its responses, and has too many of them, loses the connection.
  std::shared_ptr<Waiting> begin(InferRequest request) {
    const auto waiting = std::make_shared<Waiting>(stream().get_executor());
    handed_over_ = true;
    stream().expires_never();
    handle_ = state_->server.infer(std::move(request), [self = shared_from_this(), waiting](InferResponse response,
                                                                                            bool last) {
      // At once where this thread has run the step.
      asio::dispatch(self->stream().get_executor(), [self, waiting, last, response = std::move(response)]() mutable {
        self->take(*waiting, std::move(response));
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
  void take(Waiting& waiting, InferResponse response) {
    Held held;
    try {
      if (!waiting.responses.empty()) held = Held(reader_.memory(), kOfResponse);
    } catch (const Error&) {
      if (!std::exchange(waiting.gone, true)) {
        if (handle_ != nullptr) handle_->cancel();
        stream().cancel();  // what is being sent
      }
    }
    if (waiting.gone) response.outputs.clear();
    waiting.responses.emplace_back(std::move(response), std::move(held));
  }
  Task<void> wait(std::shared_ptr<Waiting> waiting, bool for_all) {
    while (for_all ? !waiting->over : waiting->responses.empty()) {
      if (std::exchange(waiting->doubtful, false)) {
        // A comment between events, or what stands before an answer.
        const std::string asks = waiting->told ? "3\r\n:\n\n\r\n" : "HTTP/1.1 100 Continue\r\n\r\n", end;
        const Text nothing;
        co_await send_event(asks, nothing, end);
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
    InferResponse response = std::move(waiting->responses.back().first);
    if (several || waiting->responses.size() > 1)
      response.error = Error(Code::kUnsupported,
                             "infer: this model gives several responses to a request; ask for them over gRPC, by "
                             "ModelStreamInfer, or by generate_stream");
    co_return response;
  }

  // Each response as it comes, as an event ("data: {..}"); an error is one, too. A request that is wrong itself is
  // refused as elsewhere.
  Task<bool> stream_events() {
    if (reader_.header().version() == 10) throw HttpError(400, "generate_stream: HTTP/1.0 has no chunks; ask by 1.1");
    NamedRequest named = co_await bodies_.named(route_);
    complete(named.request);
    const NamedForm form = named.form;
    const std::shared_ptr<Waiting> waiting = begin(std::move(named.request));
    bool begun = false, gone = false;
    for (bool more = true; more;) {
      co_await wait(waiting, false);
      InferResponse response = std::move(waiting->responses.front().first);
      waiting->responses.pop_front();
      more = !(waiting->over && waiting->responses.empty());
      if (gone || waiting->gone) {
        gone = true;
        continue;  // until the request is over
      }
      HttpReply reply;
      Text event(reader_.memory());
      try {
        if (response.error) throw *response.error;
        const bool is_long = bytes_of(response) > kLongTensors;
        co_await done_in(is_long, write_named(form, response, event));
      } catch (...) {
        reply = reply_of_current();
        event = reply.body;
      }
      response = {};
      if (!begun && reply.status != 200 && !more) {
        end_watch();
        co_return co_await write(std::move(reply));
      }
      if (state_->draining) keep_alive_ = false;
      constexpr std::string_view kBefore = "data: ", kBehind = "\n\n";
      std::string head = begun ? "" : events_head(keep_alive_);
      head += fmt::format("{:x}\r\n{}", kBefore.size() + event.size() + kBehind.size(), kBefore);
      begun = waiting->told = true;
      gone = !co_await send_event(head, event, fmt::format("{}\r\n{}", kBehind, more ? "" : "0\r\n\r\n"));
      if (gone && handle_ != nullptr) handle_->cancel();
    }
    end_watch();
    co_return !gone && keep_alive_;
  }
  static uint64_t bytes_of(const InferResponse& response) {
    uint64_t bytes = 0;
    for (const Tensor& output : response.outputs) bytes += output.bytes;
    return bytes;
  }
  // False when the client does not take it.
  Task<bool> send_event(const std::string& head, const Text& event, const std::string& end) {
    stream().expires_after(state_->options.response_timeout);
    error_code error;
    const std::array<asio::const_buffer, 3> parts = {asio::buffer(head), asio::buffer(event.data(), event.size()),
                                                     asio::buffer(end)};
    co_await asio::async_write(stream(), parts, redirect_error(asio::use_awaitable, error));
    stream().expires_never();
    co_return !error;
  }

  // A large reply counts until the client has it.
  Task<bool> write(HttpReply reply) {
    Held held;
    try {
      if (reply.body.size() > kSmallReply) held = Held(reader_.memory(), reply.body.size());
    } catch (...) {
      reply = reply_of_current();
    }
    if (state_->draining) keep_alive_ = false;
    const std::string head =
        serving::text_of(ResponseHead{reply.status, reply.type, reply.body.size(), reply.headers, keep_alive_});
    if (reader_.header().method() == http::verb::head) reply.body.clear();
    const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(reply.body)};
    co_return co_await send_parts(parts, reply.body.size());
  }

  // The text that the client gets for a response without an error. Long work is done elsewhere.
  Task<Written> written_answer(const Form& form, const InferResponse& response, Coding coding) {
    InferAnswer answer;
    answer.json = Text(reader_.memory());
    co_await done_in(bytes_of(response) > kLongTensors, form(response, answer));
    Written out{"", std::move(answer.json), std::move(answer.binary)};
    ResponseHead head;
    head.type = answer.has_binary ? "application/octet-stream" : "application/json";
    if (answer.has_binary)
      head.headers.emplace_back("Inference-Header-Content-Length", std::to_string(out.text.size()));
    if (coding != Coding::kNone) {
      std::vector<std::string_view> parts = {out.text};
      size_t bytes = out.text.size();
      for (const Tensor& tensor : out.tensors) {
        parts.emplace_back(static_cast<const char*>(tensor.data.get()), tensor.bytes);
        bytes += tensor.bytes;
      }
      Text packed(reader_.memory());
      co_await done_in(bytes > kLongBody, pack(std::move(parts), coding, packed));
      out.text = std::move(packed);
      out.tensors.clear();
      head.headers.emplace_back("Content-Encoding", coding_name(coding));
    }
    head.bytes = out.text.size();
    for (const Tensor& tensor : out.tensors) head.bytes += tensor.bytes;
    if (state_->draining) keep_alive_ = false;
    head.keep_alive = keep_alive_;
    out.head = serving::text_of(head);
    co_return out;
  }

  Task<bool> send(Written out) {
    std::vector<asio::const_buffer> parts = {asio::buffer(out.head), asio::buffer(out.text.data(), out.text.size())};
    size_t bytes = out.text.size();
    for (const Tensor& tensor : out.tensors) {
      parts.push_back(asio::buffer(tensor.data.get(), tensor.bytes));
      bytes += tensor.bytes;
    }
    co_return co_await send_parts(parts, bytes);
  }
  template <class Parts>
  Task<bool> send_parts(const Parts& parts, size_t bytes) {
    stream().expires_after(state_->options.response_timeout + std::chrono::milliseconds(bytes / 10));
    co_await asio::async_write(stream(), parts, asio::use_awaitable);
    co_return keep_alive_;
  }

  ClientStream& stream() { return reader_.stream(); }

  const std::shared_ptr<HttpState> state_;
  RequestReader reader_;
  RequestBodies bodies_;
  Route route_;
  Places::Kind kind_ = Places::Kind::kNone;  // of its place
  bool keep_alive_ = false;
  bool handed_over_ = false;  // the server has the request, and counts it
  std::shared_ptr<RequestHandle> handle_;
};

void serve_connection(tcp::socket socket, const std::shared_ptr<HttpState>& state) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const auto connection = std::make_shared<Connection>(std::move(socket), state);
  const Places::Kind kind = state->places.enter(connection);
  if (kind == Places::Kind::kNone)
    connection->refuse();
  else
    connection->start(kind);
}

}  // namespace sluice::serving
