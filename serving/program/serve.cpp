#include "serving/program/serve.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <thread>

#include "serving/core/loaded.h"
#include "serving/grpc/grpc_server.h"
#include "serving/http/front_metrics.h"
#include "serving/http/http_server.h"

namespace sluice::serving {

namespace {

using std::chrono::milliseconds;

// Signals that end the server are taken by one thread at a time, when it asks: nothing runs in a handler.
class Signals {
 public:
  // To be called before there is another thread, since threads inherit what is blocked.
  Signals() {
    sigemptyset(&set_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
  }
  // The next one; 0 after `patience`.
  int wait(milliseconds patience) const {
    const timespec time{static_cast<time_t>(patience.count() / 1000),
                        static_cast<long>(patience.count() % 1000) * 1000000};
    const int signal = sigtimedwait(&set_, nullptr, &time);
    return signal < 0 ? 0 : signal;
  }

 private:
  sigset_t set_{};
};

void print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// A SIGTERM when there is nothing more to read: when the program that holds the other end of the pipe has ended.
void end_with_stdin() {
  std::thread([] {
    std::array<char, 4096> ignored{};
    ssize_t n = 0;
    while ((n = ::read(STDIN_FILENO, ignored.data(), ignored.size())) > 0 || (n < 0 && errno == EINTR)) {
    }
    ::kill(::getpid(), SIGTERM);
  }).detach();
}

// Every connection is a descriptor. The soft limit is low for programs that use select(), which this one does not.
void allow_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    log_warning(fmt::format("the limit of open files stays low: {}", std::strerror(errno)));
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

class Program {
 public:
  Program(const Arguments& args, const Signals& signals) : args_(args), signals_(signals) {}

  int run() {
    set_log_settings(args_.log);
    google::protobuf::SetLogHandler(nullptr);  // a line for every message that is none would be the clients' to write
    if (!args_.log_file.empty()) set_log_file(args_.log_file);
    if (!args_.token_file.empty()) token_ = read_token(args_.token_file);
    for (const std::string& option : args_.passed_over)
      log_warning(option + ": it tunes what is not here, and changes nothing");
    if (args_.exit_with_stdin) end_with_stdin();
    allow_descriptors();
    server_ = make_server(args_.server);
    listen();
    warn_of_strangers();
    const int signal = wait_for_models();
    if (status_ != 0) return status_;
    return end(signal != 0 ? signal : wait_for_end());
  }

 private:
  void listen();
  void warn_of_strangers() const;
  // Until every model is loaded, or has failed. Returns the signal that ended the wait, if one did.
  int wait_for_models();
  int wait_for_end() const;
  // Answers what is under way. Another signal ends the process.
  int end(int signal);

  const Arguments& args_;
  const Signals& signals_;
  std::string token_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<HttpServer> http_, metrics_;
  std::unique_ptr<GrpcServer> grpc_;
  int status_ = 0;
};

void Program::listen() {
  const auto memory = std::make_shared<MemoryBudget>(args_.request_memory_bytes);
  const auto counts = [this, memory] { return front_metrics(*memory, http_ ? http_->connections() : 0); };
  if (args_.http.on) {
    HttpOptions options;
    options.memory = memory;
    options.address = args_.http.address;
    options.port = args_.http.port;
    options.base_path = args_.http_base_path;
    options.max_input = args_.http_max_input_bytes;
    options.threads = args_.http_threads;
    options.max_connections = args_.max_connections;
    options.more_metrics = counts;
    options.management_token = token_;
    options.restrictions = args_.http_restrictions;
    options.tls = args_.http.tls;
    options.reuse_port = args_.http.reuse_port;
    http_ = std::make_unique<HttpServer>(*server_, options);
    print(fmt::format("http     {}://{}:{}{}", args_.http.tls.on ? "https" : "http", args_.http.address, http_->port(),
                      args_.http_base_path));
  }
  if (args_.grpc.on) {
    GrpcOptions options;
    options.memory = memory;
    options.address = args_.grpc.address;
    options.port = args_.grpc.port;
    options.max_message = args_.http_max_input_bytes;
    options.management_token = token_;
    options.restrictions = args_.grpc_restrictions;
    options.tls = args_.grpc.tls;
    options.reuse_port = args_.grpc.reuse_port;
    options.tuning = args_.grpc_tuning;
    grpc_ = std::make_unique<GrpcServer>(*server_, options);
    print(fmt::format("grpc     {}:{}", args_.grpc.address, grpc_->port()));
  }
  if (args_.metrics.on) {
    HttpOptions options;
    options.address = args_.metrics.address;
    options.port = args_.metrics.port;
    options.threads = 1;
    options.max_connections = args_.max_connections;
    options.metrics_only = true;
    options.more_metrics = counts;
    metrics_ = std::make_unique<HttpServer>(*server_, options);
    print(fmt::format("metrics  http://{}:{}/metrics", args_.metrics.address, metrics_->port()));
  }
}

void Program::warn_of_strangers() const {
  const bool far =
      (args_.http.on && !is_loopback(args_.http.address)) || (args_.grpc.on && !is_loopback(args_.grpc.address));
  if (far && token_.empty())
    log_warning(fmt::format(
        "whoever reaches this server's ports may change its settings{}; --management-token-file says who may",
        args_.server.control == ModelControl::kExplicit ? ", and load and unload models" : ""));
}

int Program::wait_for_models() {
  for (;;) {
    const Loaded loaded = look(*server_);
    if (loaded.done) {
      for (const std::string& failure : loaded.failures) std::fprintf(stderr, "sluice-serve: %s\n", failure.c_str());
      if (!loaded.failures.empty() && args_.exit_on_error) {
        status_ = 1;
        return 0;
      }
      print("ready    " + (loaded.ready.empty() ? "no models" : loaded.ready));
      return 0;
    }
    const int signal = signals_.wait(milliseconds(20));
    if (signal == SIGTERM || signal == SIGINT) return signal;
  }
}

int Program::wait_for_end() const {
  for (;;) {
    const int signal = signals_.wait(std::chrono::hours(1));
    if (signal == SIGTERM || signal == SIGINT) return signal;
    if (signal == SIGHUP && !args_.log_file.empty()) {
      try {
        set_log_file(args_.log_file);  // its name may be another file's by now
      } catch (const std::exception& e) {
        log_error(e.what());
      }
    }
  }
}

int Program::end(int signal) {
  log_info(fmt::format("signal {}: no new requests; those under way have {} s", signal, args_.exit_timeout.count()));
  std::thread([&signals = signals_] {
    for (;;) {
      const int again = signals.wait(std::chrono::hours(1));
      if (again == SIGTERM || again == SIGINT) ::_exit(128 + again);
    }
  }).detach();
  const auto until = Clock::now() + args_.exit_timeout;
  const auto left = [&] {
    return std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(until - Clock::now()));
  };
  bool all = true;
  if (http_) http_->stop_accepting();
  if (grpc_) all = grpc_->drain(left()) && all;
  if (http_) all = http_->drain(left()) && all;
  all = server_->drain(left()) && all;
  metrics_.reset();  // which tells of the others
  http_.reset();
  grpc_.reset();
  server_.reset();
  log_info(all ? "ended; every request was answered" : "ended; some requests were cancelled");
  return all ? 0 : 1;
}

}  // namespace

int serve(const Arguments& args) {
  static const Signals signals;  // a thread that waits for the second signal may outlive this call
  try {
    return Program(args, signals).run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sluice-serve: %s\n", e.what());
    return 1;
  }
}

}  // namespace sluice::serving
