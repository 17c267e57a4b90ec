#include "tools/sluice_perf/load.h"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>

#include "tools/sluice_perf/http_response.h"
#include "tools/sluice_perf/windows.h"

namespace sluice::perf {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

class Connection;

// Everything runs on one thread.
class Generator {
 public:
  Generator(const Target& target, const std::vector<std::string>& requests, const Level& level,
            const LoadOptions& options, const std::function<void(const std::string&)>& progress)
      : target_(target),
        requests_(requests),
        level_(level),
        options_(options),
        progress_(progress),
        random_(options.seed),
        hashes_(requests.size()) {}

  LevelResult run();

  // The news that connections tell of their requests.
  struct Item {
    size_t request = 0;
    Clock::time_point due;
  };
  void answered(const Item& item, HttpResponse& response);
  void failed(const Item& item, const std::string& why);
  void dropped() { ++result_.dropped; }
  // The next request of a connection that is free, if there is one now.
  std::optional<Item> next(Connection& connection);

  asio::io_context& context() { return context_; }
  const tcp::resolver::results_type& endpoints() const { return endpoints_; }
  const std::string& bytes_of(const Item& item) const { return requests_[item.request]; }
  Clock::duration timeout() const { return seconds(options_.timeout_s); }
  bool keep_body() const { return result_.first_error.empty(); }

 private:
  void arrive();
  void begin_arrivals();
  Connection& add_connection();
  void window_over();
  void begin_window(double length);
  void tell();
  void stop();
  size_t turn() { return turn_++ % requests_.size(); }
  void note_error(int status, const Item& item, const std::string& text);

  const Target& target_;
  const std::vector<std::string>& requests_;
  const Level level_;
  const LoadOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  std::mt19937_64 random_;
  std::vector<std::optional<uint64_t>> hashes_;  // of the first answer to each request

  asio::io_context context_{1};
  tcp::resolver::results_type endpoints_;
  asio::steady_timer arrival_{context_}, boundary_{context_}, teller_{context_};
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> idle_;
  std::deque<Item> waiting_;  // of the open loop: due, without a connection
  Clock::time_point next_arrival_, window_begin_;
  size_t turn_ = 0;
  bool warm_ = false, stopping_ = false;
  Window window_;
  std::vector<Window> windows_;
  uint64_t different_ = 0;
  ServerTimes server_before_;
  LevelResult result_;
  friend class Connection;
};

class Connection {
 public:
  explicit Connection(Generator& generator)
      : generator_(generator), socket_(generator.context()), deadline_(generator.context()) {}

  // Takes requests from the generator until it has none.
  void go() {
    if (item_) return;
    item_ = generator_.next(*this);
    if (!item_) return;
    deadline_.expires_after(generator_.timeout());
    deadline_.async_wait([this, turn = ++turn_](error_code error) {
      if (error || turn != turn_ || !item_) return;
      late_ = true;
      close();
    });
    response_.emplace(generator_.keep_body());
    if (!socket_.is_open()) return connect();
    write();
  }
  bool busy() const { return item_.has_value(); }
  void close() {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  void connect() {
    reused_ = false;
    asio::async_connect(socket_, generator_.endpoints(), [this](error_code error, const tcp::endpoint&) {
      if (error) return fail(error.message());
      error_code ignored;
      socket_.set_option(tcp::no_delay(true), ignored);
      write();
    });
  }
  void write() {
    asio::async_write(socket_, asio::buffer(generator_.bytes_of(*item_)), [this](error_code error, size_t) {
      // A server may answer and close before it has read all: what it said is worth reading.
      if (error && error != asio::error::broken_pipe && error != asio::error::connection_reset)
        return fail(error.message());
      read();
    });
  }
  void read() {
    socket_.async_read_some(asio::buffer(buffer_), [this](error_code error, size_t n) { received(error, n); });
  }
  void received(error_code error, size_t n) {
    if (error) {
      if (error == asio::error::eof && response_->finish()) return finish();
      if (late_) return fail("no answer in time");
      // A connection that had been idle may have been closed by the server just then: once it is worth another try.
      if (reused_ && !any_) {
        generator_.dropped();
        close();
        return connect();
      }
      return fail(error == asio::error::eof ? "the server closed the connection" : error.message());
    }
    any_ = true;
    try {
      response_->feed(std::string_view(buffer_.data(), n));
    } catch (const std::exception& e) {
      return fail(e.what());
    }
    if (!response_->done()) return read();
    finish();
  }
  void finish() {
    const auto item = *item_;
    const bool keep = response_->keep_alive();
    end();
    generator_.answered(item, *response_);
    if (!keep) close();
    reused_ = keep;
    go();
  }
  void fail(const std::string& why) {
    const auto item = *item_;
    end();
    close();
    generator_.failed(item, why);
    late_ = false;
    // A server that refuses connections would be asked without end.
    deadline_.expires_after(std::chrono::milliseconds(20));
    deadline_.async_wait([this](error_code) { go(); });
  }
  void end() {
    item_.reset();
    any_ = false;
    deadline_.cancel();
  }

  Generator& generator_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  std::optional<Generator::Item> item_;
  std::optional<HttpResponse> response_;
  std::array<char, 64 << 10> buffer_;
  bool reused_ = false, any_ = false, late_ = false;
  uint64_t turn_ = 0;
};

std::optional<Generator::Item> Generator::next(Connection& connection) {
  if (level_.concurrency > 0) {
    if (stopping_) return {};
    ++window_.begun;
    return Item{turn(), Clock::now()};
  }
  if (waiting_.empty()) {
    if (!stopping_) idle_.push_back(&connection);
    return {};
  }
  const Item item = waiting_.front();
  waiting_.pop_front();
  return item;
}

Connection& Generator::add_connection() {
  connections_.push_back(std::make_unique<Connection>(*this));
  return *connections_.back();
}

void Generator::arrive() {
  const auto now = Clock::now();
  while (!stopping_ && next_arrival_ <= now) {
    ++window_.begun;
    waiting_.push_back({turn(), next_arrival_});
    const double gap = options_.arrivals == Arrivals::kConstant
                           ? 1 / level_.request_rate
                           : std::exponential_distribution<double>(level_.request_rate)(random_);
    next_arrival_ += seconds(gap);
    if (!idle_.empty()) {
      Connection* connection = idle_.back();
      idle_.pop_back();
      connection->go();
    } else if (connections_.size() < static_cast<size_t>(options_.max_connections)) {
      add_connection().go();
    }
  }
  begin_arrivals();
}

void Generator::begin_arrivals() {
  if (stopping_) return;
  arrival_.expires_at(next_arrival_);
  arrival_.async_wait([this](error_code error) {
    if (!error) arrive();
  });
}

void Generator::note_error(int status, const Item& item, const std::string& text) {
  ++window_.errors[status];
  window_.failed.push_back((Clock::now() - item.due).count());
  if (result_.first_error.empty()) result_.first_error = text.empty() ? "no text" : text;
}

void Generator::answered(const Item& item, HttpResponse& response) {
  if (response.status() != 200) {
    const std::string body = keep_body() ? response.take_body() : "";
    return note_error(response.status(), item, body.substr(0, 300));
  }
  window_.ok.push_back((Clock::now() - item.due).count());
  if (!options_.expect_equal) return;
  auto& first = hashes_[item.request];
  if (!first) first = response.hash();
  if (*first != response.hash()) ++different_;
}

void Generator::failed(const Item& item, const std::string& why) { note_error(0, item, why); }

void Generator::begin_window(double length) {
  window_ = {};
  window_begin_ = Clock::now();
  boundary_.expires_at(window_begin_ + seconds(length));
  boundary_.async_wait([this](error_code error) {
    if (!error) window_over();
  });
}

void Generator::window_over() {
  window_.seconds = std::chrono::duration<double>(Clock::now() - window_begin_).count();
  if (warm_) {
    windows_.push_back(std::move(window_));
    if (stable(windows_, options_) || windows_.size() >= static_cast<size_t>(options_.max_windows)) return stop();
  }
  warm_ = true;
  begin_window(options_.window_s);
}

void Generator::tell() {
  const double at = std::chrono::duration<double>(Clock::now() - window_begin_).count();
  const double rate = at > 0.05 ? static_cast<double>(window_.ok.size()) / at : 0;
  uint64_t errors = 0;
  for (const auto& [status, count] : window_.errors) errors += count;
  progress_(fmt::format("{:>8}  {} {:>9.1f} requests/s{}", level_.name(),
                        warm_ ? fmt::format("window {}", windows_.size() + 1) : "warm-up ", rate,
                        errors > 0 ? fmt::format(", {} errors", errors) : ""));
  teller_.expires_after(std::chrono::milliseconds(100));
  teller_.async_wait([this](error_code error) {
    if (!error && !stopping_) tell();  // it may have been due when it was cancelled
  });
}

// Requests under way are answered; nothing new begins.
void Generator::stop() {
  stopping_ = true;
  waiting_.clear();
  boundary_.cancel();
  teller_.cancel();
  arrival_.cancel();
}

LevelResult Generator::run() {
  tcp::resolver resolver(context_);
  error_code error;
  endpoints_ = resolver.resolve(target_.host, target_.port, error);
  if (error) throw std::runtime_error(fmt::format("server '{}': {}", target_.host, error.message()));
  const int first = level_.concurrency > 0 ? level_.concurrency : 4;
  for (int i = 0; i < first; ++i) add_connection();
  begin_window(options_.warmup_s);
  for (const auto& connection : connections_) connection->go();
  next_arrival_ = Clock::now();
  if (level_.concurrency == 0) begin_arrivals();
  tell();
  context_.run();
  LevelResult result = merged(windows_, options_);
  result.level = level_;
  result.first_error = result_.first_error;
  result.different = different_;
  result.dropped = result_.dropped;
  result.connections = static_cast<int>(connections_.size());
  return result;
}

}  // namespace

LevelResult run_level(const Target& target, const std::vector<std::string>& requests, const Level& level,
                      const LoadOptions& options, const std::function<void(const std::string& line)>& progress) {
  if (requests.empty()) throw std::runtime_error("there is nothing to send");
  return Generator(target, requests, level, options, progress).run();
}

}  // namespace sluice::perf
