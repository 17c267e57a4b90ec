// The page of a process that runs. It is read-only: it answers GET alone, on 127.0.0.1, and only with the token that
// its address has. Nothing is written, here or there.
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "plan/json/json.h"
#include "tools/plan_viz/live.h"
#include "tools/plan_viz/live_client.h"
#include "tools/plan_viz/page.h"

namespace sluice::plan_viz {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;
using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

constexpr auto kPatience = std::chrono::seconds(30);
constexpr auto kLook = std::chrono::milliseconds(500);
constexpr auto kFarewell = std::chrono::seconds(3);  // for the page to hear of the end

std::string new_token() {
  std::ifstream random("/dev/urandom", std::ios::binary);
  std::string token;
  for (int i = 0; i < 16; ++i) token += fmt::format("{:02x}", static_cast<unsigned>(random.get()) & 0xff);
  SLUICE_CHECK_KIND(kIo, random.good(), "live: /dev/urandom cannot be read, and the page needs a token");
  return token;
}

// Takes as long for a wrong token as for the right one.
bool same(std::string_view a, std::string_view b) {
  unsigned differs = a.size() != b.size();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    differs |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return differs == 0;
}

// One process and one plan of it.
class Shown {
 public:
  explicit Shown(const LiveOptions& options) : client_(options.pid) {
    plan::LiveProcess process;
    const bool there = client_.ask_state(process);
    for (const plan::LiveSession& session : process.sessions) {
      if (!options.session.empty() && session.name != options.session) continue;
      if (id_ != 0 && session.submitted <= most_) continue;  // the one that has run most
      std::unique_ptr<LivePlan> plan = client_.plan(session.id);
      if (plan == nullptr) continue;
      plan_ = std::move(plan);
      id_ = session.id;
      most_ = session.submitted;
    }
    const std::string none = options.session.empty() ? "no plan" : "no plan '" + options.session + "'";
    SLUICE_CHECK_KIND(kIo, there && plan_ != nullptr, "process {} ({}): it has {} loaded; `plan-viz top {}` shows all",
                      options.pid, client_.program(), none, options.pid);
    Page page{&plan_->plan(), &plan_->plan(), options.source};
    page.live = fmt::format("{{\"pid\":{},\"program\":{}}}", options.pid, plan::quoted_json(client_.program()));
    html_ = html_page({page});
  }

  const std::string& html() const { return html_; }
  const std::string& program() const { return client_.program(); }
  const plan::Plan& plan() const { return plan_->plan(); }
  bool ended() const { return ended_; }
  // "" once the session or its process has ended.
  std::string moment() {
    plan::LiveProcess process;
    if (ended_ || !client_.ask_state(process)) return end();
    for (plan::LiveSession& session : process.sessions) {
      if (session.id != id_) continue;
      plan_->check(session);
      return moment_json(*plan_, {process.clock_ns, std::move(session)});
    }
    return end();
  }

 private:
  std::string end() {
    ended_ = true;
    return "";
  }
  LiveClient client_;
  std::unique_ptr<LivePlan> plan_;
  std::string html_;
  uint64_t id_ = 0, most_ = 0;
  bool ended_ = false;
};

struct Site {
  Shown& shown;
  std::string token, host;  // "127.0.0.1:8123"

  Response answer(const Request& request) {
    Response response{http::status::ok, request.version()};
    response.set(http::field::cache_control, "no-store");
    response.set(http::field::content_type, "text/plain; charset=utf-8");
    response.set("Referrer-Policy", "no-referrer");
    response.set("X-Content-Type-Options", "nosniff");
    response.set("X-Frame-Options", "DENY");
    response.keep_alive(request.keep_alive());
    const auto refuse = [&](http::status status, const char* why) {
      response.result(status);
      response.body() = fmt::format("plan-viz live: {}\n", why);
    };
    const std::string_view target(request.target().data(), request.target().size());
    const size_t query = std::min(target.find('?'), target.size());
    const std::string_view path = target.substr(0, query), given = target.substr(query);
    const auto named = request[http::field::host];
    if (std::string_view(named.data(), named.size()) != host) {  // a name of elsewhere that means this machine
      refuse(http::status::forbidden, "only its own address is answered");
    } else if (!same(given, "?token=" + token)) {
      refuse(http::status::forbidden, "the token is missing or wrong; open the address that plan-viz has printed");
    } else if (request.method() != http::verb::get) {
      response.set(http::field::allow, "GET");
      refuse(http::status::method_not_allowed, "it can only be looked at; ask with GET");
    } else if (path == "/") {
      response.set(http::field::content_type, "text/html; charset=utf-8");
      response.body() = shown.html();
    } else if (path == "/state") {
      response.set(http::field::content_type, "application/json");
      response.body() = shown.moment();
      if (response.body().empty()) refuse(http::status::gone, "the process has ended");
    } else {
      refuse(http::status::not_found, "there is no such page");
    }
    response.prepare_payload();
    return response;
  }
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Site& site) : stream_(std::move(socket)), site_(site) {}
  void read() {
    request_ = {};
    stream_.expires_after(kPatience);
    http::async_read(stream_, buffer_, request_, [self = shared_from_this()](beast::error_code error, size_t) {
      if (!error) self->write();
    });
  }

 private:
  void write() {
    try {
      response_ = site_.answer(request_);
    } catch (const std::exception& error) {
      response_ = Response{http::status::bad_gateway, request_.version()};
      response_.body() = fmt::format("plan-viz live: {}\n", error.what());
      response_.prepare_payload();
    }
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code error, size_t) {
      if (!error && self->response_.keep_alive()) self->read();
    });
  }
  beast::tcp_stream stream_;
  Site& site_;
  beast::flat_buffer buffer_;
  Request request_;
  Response response_;
};

void accept_next(tcp::acceptor& acceptor, Site& site) {
  acceptor.async_accept([&](beast::error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) std::make_shared<Connection>(std::move(socket), site)->read();
    accept_next(acceptor, site);
  });
}

}  // namespace

int serve_page(const LiveOptions& options) {
  Shown shown(options);
  asio::io_context context(1);
  std::optional<tcp::acceptor> acceptor;
  try {
    acceptor.emplace(context, tcp::endpoint(asio::ip::address_v4::loopback(), static_cast<uint16_t>(options.port)));
  } catch (const boost::system::system_error& error) {
    fail(ErrorKind::kIo, "live: port {} of 127.0.0.1 cannot be had: {}; choose another, or 0 for any that is free",
         options.port, error.code().message());
  }
  Site site{shown, new_token(), fmt::format("127.0.0.1:{}", acceptor->local_endpoint().port())};
  asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](beast::error_code error, int) {
    if (!error) context.stop();
  });
  asio::steady_timer timer(context);
  std::function<void()> look = [&] {
    timer.expires_after(shown.ended() ? std::chrono::duration_cast<asio::steady_timer::duration>(kFarewell) : kLook);
    timer.async_wait([&](beast::error_code error) {
      if (error) return;
      if (shown.ended()) return context.stop();
      shown.moment();
      look();
    });
  };
  look();
  accept_next(*acceptor, site);
  std::cout << fmt::format("plan '{}' of process {} ({}):\nhttp://{}/?token={}\n", shown.plan().name, options.pid,
                           shown.program(), site.host, site.token)
            << std::flush;
  context.run();
  if (shown.ended()) std::cout << fmt::format("process {} ({}) has ended\n", options.pid, shown.program());
  return 0;
}

}  // namespace sluice::plan_viz
