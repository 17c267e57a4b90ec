#include "tools/sluice_perf/target.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "tools/sluice_perf/http_response.h"

namespace sluice::perf {

namespace {

namespace json = boost::json;

class Socket {
 public:
  explicit Socket(const Target& target) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found); error != 0)
      throw std::runtime_error(fmt::format("server '{}': {}", target.host, ::gai_strerror(error)));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
    int error = 0;
    for (const addrinfo* at = found; at != nullptr && fd_ < 0; at = at->ai_next) {
      fd_ = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
      if (fd_ >= 0 && ::connect(fd_, at->ai_addr, at->ai_addrlen) != 0) {
        error = errno;
        ::close(fd_);
        fd_ = -1;
      }
    }
    if (fd_ < 0)
      throw std::runtime_error(fmt::format("server {}:{}: {}; is sluice-serve running there?", target.host, target.port,
                                           std::strerror(error)));
    const timeval patience{60, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error(fmt::format("the server closed the connection: {}", std::strerror(errno)));
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  size_t read(char* to, size_t most) {
    for (;;) {
      const ssize_t n = ::recv(fd_, to, most, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw std::runtime_error(fmt::format("no answer: {}", std::strerror(errno)));
      return static_cast<size_t>(n);
    }
  }

 private:
  int fd_ = -1;
};

json::value get(const Target& target, const std::string& path) {
  const Answer answer = call(target, "GET", path);
  json::error_code error;
  const json::value value = json::parse(answer.body, error);
  if (answer.status != 200) {
    const bool told = !error && value.is_object() && value.as_object().contains("error");
    throw std::runtime_error(fmt::format("the server answers {} to GET {}: {}", answer.status, path,
                                         told ? std::string(value.at("error").as_string()) : answer.body));
  }
  if (error) throw std::runtime_error(fmt::format("the server's answer to GET {} is not JSON", path));
  return value;
}

std::vector<ModelTensor> tensors_of(const json::value& list) {
  std::vector<ModelTensor> tensors;
  for (const json::value& item : list.as_array()) {
    ModelTensor tensor{std::string(item.at("name").as_string()), std::string(item.at("datatype").as_string()), {}};
    for (const json::value& dim : item.at("shape").as_array()) tensor.shape.push_back(dim.to_number<int64_t>());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

uint64_t number(const json::value& object, const char* name) { return object.at(name).to_number<uint64_t>(); }

}  // namespace

std::string Target::model_path() const {
  return "/v2/models/" + model + (version.empty() ? "" : "/versions/" + version);
}

Target parse_target(const std::string& url) {
  std::string_view text = url;
  if (text.starts_with("http://")) text.remove_prefix(7);
  if (text.find("://") != std::string_view::npos)
    throw std::runtime_error(
        fmt::format("url '{}': only http:// is spoken here; for TLS measure behind the proxy", url));
  Target target;
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    target.base = text.substr(slash);
    while (target.base.ends_with('/')) target.base.pop_back();
    text = text.substr(0, slash);
  }
  const size_t bracket = text.find(']');
  const size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) target.port = text.substr(colon + 1);
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || target.port.empty())
    throw std::runtime_error(fmt::format("url '{}': it must be HOST:PORT, as in 127.0.0.1:8000", url));
  target.host = host;
  return target;
}

Answer call(const Target& target, const std::string& method, const std::string& path, const std::string& body) {
  Socket socket(target);
  socket.write(fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
                           method, target.base, path, target.host, target.port, body.size(), body));
  HttpResponse response(true);
  std::string buffer(64 << 10, '\0');
  while (!response.done()) {
    const size_t n = socket.read(buffer.data(), buffer.size());
    if (n == 0 && !response.finish()) throw std::runtime_error("the server closed the connection before its answer");
    response.feed(std::string_view(buffer).substr(0, n));
  }
  return {response.status(), response.take_body()};
}

ModelInfo model_info(const Target& target) try {
  const json::value metadata = get(target, target.model_path());
  const json::value config = get(target, target.model_path() + "/config");
  ModelInfo info;
  info.name = metadata.at("name").as_string();
  info.version = target.version;
  info.inputs = tensors_of(metadata.at("inputs"));
  info.outputs = tensors_of(metadata.at("outputs"));
  if (const json::value* most = config.as_object().if_contains("max_batch_size"))
    info.max_batch = most->to_number<int64_t>();
  return info;
} catch (const boost::system::system_error& e) {
  throw std::runtime_error(
      fmt::format("model '{}': its metadata is not what it should be: {}", target.model, e.what()));
}

ServerTimes server_times(const Target& target) try {
  const json::value stats = get(target, target.model_path() + "/stats");
  ServerTimes times;
  for (const json::value& model : stats.at("model_stats").as_array()) {
    const json::value& infer = model.at("inference_stats");
    times.inferences += number(model, "inference_count");
    times.executions += number(model, "execution_count");
    times.requests += number(infer.at("success"), "count");
    times.queue += number(infer.at("queue"), "ns");
    times.input += number(infer.at("compute_input"), "ns");
    times.infer += number(infer.at("compute_infer"), "ns");
    times.output += number(infer.at("compute_output"), "ns");
  }
  return times;
} catch (const boost::system::system_error& e) {
  throw std::runtime_error(
      fmt::format("model '{}': its statistics are not what they should be: {}", target.model, e.what()));
}

StepTimes step_times(const Target& target) try {
  const json::value stats = get(target, target.model_path() + "/stats");
  StepTimes times;
  for (const json::value& model : stats.at("model_stats").as_array()) {
    const json::value* batches = model.as_object().if_contains("batch_stats");
    if (batches == nullptr) continue;
    for (const json::value& batch : batches->as_array()) {
      uint64_t ns = 0;
      for (const char* part : {"compute_input", "compute_infer", "compute_output"}) ns += number(batch.at(part), "ns");
      times.add(batch.at("batch_size").to_number<int64_t>(), static_cast<double>(ns) / 1e9,
                number(batch.at("compute_infer"), "count"));
    }
  }
  return times;
} catch (const boost::system::system_error& e) {
  throw std::runtime_error(
      fmt::format("model '{}': its statistics are not what they should be: {}", target.model, e.what()));
}

ServerTimes ServerTimes::since(const ServerTimes& before) const {
  return {requests - before.requests, executions - before.executions, inferences - before.inferences,
          queue - before.queue,       input - before.input,           infer - before.infer,
          output - before.output};
}

}  // namespace sluice::perf
