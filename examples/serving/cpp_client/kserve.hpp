#pragma once
// A client of the Open Inference Protocol (KServe v2) over HTTP in one header: for sluice-serve, and servers like it.
// It needs POSIX sockets and C++17, and nothing else.
//
//   kserve::Client client("127.0.0.1", 8000);
//   const auto answers = client.infer("digits", {kserve::floats("INPUT_0", {1, 1, 8, 8}, pixels)}, {{"OUTPUT_0", 3}});
//   for (const std::string& text : answers[0].strings()) std::puts(text.c_str());  // "11.630257:4"
//
// Tensors go and come as bytes. One thread at a time may use a client; its connection is kept.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kserve {

// What the server refused, or that it could not be reached (status 0).
class Error : public std::runtime_error {
 public:
  Error(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

struct Tensor {
  std::string name, datatype;  // "FP32", "INT64", "BYTES"
  std::vector<int64_t> shape;
  std::string bytes;  // little-endian, row-major; BYTES: each element its length in 4 bytes, and its bytes

  template <class T>
  std::vector<T> values() const {
    std::vector<T> all(bytes.size() / sizeof(T));
    std::memcpy(all.data(), bytes.data(), all.size() * sizeof(T));
    return all;
  }
  std::vector<std::string> strings() const {
    std::vector<std::string> all;
    for (size_t at = 0; at + 4 <= bytes.size();) {
      uint32_t size = 0;
      std::memcpy(&size, bytes.data() + at, sizeof size);
      if (bytes.size() - at - 4 < size) throw Error(0, "answer: output '" + name + "' ends within an element");
      all.emplace_back(bytes, at + 4, size);
      at += 4 + size;
    }
    return all;
  }
};

template <class T>
Tensor numbers(std::string name, std::string datatype, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {std::move(name), std::move(datatype), std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}
inline Tensor floats(std::string name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return numbers(std::move(name), "FP32", std::move(shape), values);
}

struct Output {
  std::string name;
  unsigned classes = 0;  // > 0: the k largest, as strings "value:index[:label]"
};

namespace detail {

// As much JSON as answers need: values of every kind are read, and found by name or number.
class Json {
 public:
  static Json parse(const std::string& text) {
    size_t at = 0;
    Json value = read(text, at, 0);
    skip(text, at);
    if (at != text.size()) throw Error(0, "answer: more than one value of JSON");
    return value;
  }
  const Json& operator[](const std::string& name) const {
    static const Json none;
    const auto found = members_.find(name);
    return found == members_.end() ? none : found->second;
  }
  const std::vector<Json>& items() const { return items_; }
  const std::string& text() const { return text_; }  // of a string or a number
  int64_t number() const { return std::strtoll(text_.c_str(), nullptr, 10); }

 private:
  static void skip(const std::string& s, size_t& at) {
    while (at < s.size() && std::isspace(static_cast<unsigned char>(s[at])) != 0) ++at;
  }
  static char peek(const std::string& s, size_t& at) {
    skip(s, at);
    if (at == s.size()) throw Error(0, "answer: its JSON is cut off");
    return s[at];
  }
  static std::string read_string(const std::string& s, size_t& at) {
    std::string out;
    for (++at; at < s.size() && s[at] != '"'; ++at) {
      if (s[at] != '\\') {
        out += s[at];
        continue;
      }
      if (++at == s.size()) break;
      const size_t escape = std::string("bfnrt").find(s[at]);
      if (s[at] == 'u' && at + 4 < s.size()) {
        append_utf8(out, static_cast<unsigned>(std::strtoul(s.substr(at + 1, 4).c_str(), nullptr, 16)));
        at += 4;
      } else {
        out += escape == std::string::npos ? s[at] : "\b\f\n\r\t"[escape];
      }
    }
    if (at == s.size()) throw Error(0, "answer: its JSON is cut off");
    ++at;
    return out;
  }
  static void append_utf8(std::string& out, unsigned code) {
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xc0 | (code >> 6));
      out += static_cast<char>(0x80 | (code & 0x3f));
    } else {
      out += static_cast<char>(0xe0 | (code >> 12));
      out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
      out += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  static Json read(const std::string& s, size_t& at, int depth) {
    if (depth > 64) throw Error(0, "answer: its JSON is too deep");
    Json value;
    const char first = peek(s, at);
    if (first == '"') {
      value.text_ = read_string(s, at);
    } else if (first == '{' || first == '[') {
      const char last = first == '{' ? '}' : ']';
      ++at;
      while (peek(s, at) != last) {
        std::string name;
        if (first == '{') {
          if (s[at] != '"') throw Error(0, "answer: a member without a name");
          name = read_string(s, at);
          if (peek(s, at) != ':') throw Error(0, "answer: a member without a value");
          ++at;
        }
        Json item = read(s, at, depth + 1);
        if (first == '{')
          value.members_[name] = std::move(item);
        else
          value.items_.push_back(std::move(item));
        if (peek(s, at) == ',') ++at;
      }
      ++at;
    } else {
      while (at < s.size() && std::strchr(",]} \t\r\n", s[at]) == nullptr) value.text_ += s[at++];
      if (value.text_.empty()) throw Error(0, "answer: a value is missing");
    }
    return value;
  }

  std::string text_;
  std::vector<Json> items_;
  std::map<std::string, Json> members_;
};

inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) throw Error(0, "a name has a control character");
    out += c;
  }
  return out + "\"";
}

}  // namespace detail

class Client {
 public:
  Client(std::string host, int port) : host_(std::move(host)), port_(port) {}
  ~Client() { disconnect(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool ready() { return ask("GET", "/v2/health/ready", "", 0).status == 200; }

  // The outputs asked for, in that order; all when none are.
  std::vector<Tensor> infer(const std::string& model, const std::vector<Tensor>& inputs,
                            const std::vector<Output>& outputs = {}, const std::string& version = "") {
    std::string body = head_of(inputs, outputs);
    const size_t head = body.size();
    for (const Tensor& input : inputs) body += input.bytes;
    const std::string path = "/v2/models/" + model + (version.empty() ? "" : "/versions/" + version) + "/infer";
    const Answer answer = ask("POST", path, body, head);
    if (answer.status != 200) throw Error(answer.status, detail::Json::parse(answer.body)["error"].text());
    return tensors_of(answer);
  }

 private:
  struct Answer {
    int status = 0;
    size_t head = 0;  // bytes of JSON
    std::string body;
  };

  static std::string head_of(const std::vector<Tensor>& inputs, const std::vector<Output>& outputs) {
    std::string json = R"({"parameters":{"binary_data_output":true},"inputs":[)";
    for (const Tensor& input : inputs) {
      json += (&input == &inputs.front() ? "{" : ",{") + std::string("\"name\":") + detail::quoted(input.name);
      json += ",\"datatype\":" + detail::quoted(input.datatype) + ",\"shape\":[";
      for (size_t i = 0; i < input.shape.size(); ++i) json += (i > 0 ? "," : "") + std::to_string(input.shape[i]);
      json += "],\"parameters\":{\"binary_data_size\":" + std::to_string(input.bytes.size()) + "}}";
    }
    json += "]";
    if (outputs.empty()) return json + "}";
    json += ",\"outputs\":[";
    for (const Output& output : outputs) {
      json += (&output == &outputs.front() ? "{" : ",{") + std::string("\"name\":") + detail::quoted(output.name);
      if (output.classes > 0) json += ",\"parameters\":{\"classification\":" + std::to_string(output.classes) + "}";
      json += "}";
    }
    return json + "]}";
  }

  static std::vector<Tensor> tensors_of(const Answer& answer) {
    const detail::Json head = detail::Json::parse(answer.body.substr(0, answer.head));
    std::vector<Tensor> all;
    size_t at = answer.head;
    for (const detail::Json& output : head["outputs"].items()) {
      Tensor tensor{output["name"].text(), output["datatype"].text(), {}, ""};
      for (const detail::Json& dim : output["shape"].items()) tensor.shape.push_back(dim.number());
      const auto size = static_cast<size_t>(output["parameters"]["binary_data_size"].number());
      if (size > answer.body.size() - at) throw Error(0, "answer: it is shorter than it says");
      tensor.bytes = answer.body.substr(at, size);
      at += size;
      all.push_back(std::move(tensor));
    }
    return all;
  }

  // A connection that was kept may have been closed meanwhile: then once more, over a new one.
  Answer ask(const std::string& method, const std::string& path, const std::string& body, size_t head) {
    std::string request = method + " " + path + " HTTP/1.1\r\nHost: " + host_ + ":" + std::to_string(port_) +
                          "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    if (head > 0) request += "Inference-Header-Content-Length: " + std::to_string(head) + "\r\n";
    request += "\r\n" + body;
    const bool kept = socket_ >= 0;
    if (!kept) connect();
    Answer answer;
    if (send_all(request) && receive(answer)) return answer;
    disconnect();
    if (kept) {
      connect();
      answer = Answer();
      if (send_all(request) && receive(answer)) return answer;
      disconnect();
    }
    throw Error(0, host_ + ":" + std::to_string(port_) + ": the connection was closed");
  }

  void connect() {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int wrong = ::getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &hints, &found);
    if (wrong != 0) throw Error(0, host_ + ": " + ::gai_strerror(wrong));
    for (const addrinfo* a = found; a != nullptr && socket_ < 0; a = a->ai_next) {
      socket_ = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
      if (socket_ >= 0 && ::connect(socket_, a->ai_addr, a->ai_addrlen) != 0) disconnect();
    }
    ::freeaddrinfo(found);
    if (socket_ < 0) throw Error(0, host_ + ":" + std::to_string(port_) + ": " + std::strerror(errno));
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  void disconnect() {
    const int error = errno;
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
    errno = error;
  }
  bool send_all(const std::string& data) const {
    for (size_t at = 0; at < data.size();) {
      const ssize_t n = ::send(socket_, data.data() + at, data.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }
  bool more(std::string& data) const {
    char buffer[1 << 16];
    const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    data.append(buffer, static_cast<size_t>(n));
    return true;
  }
  bool receive(Answer& answer) {
    std::string data;
    size_t end = 0;
    while ((end = data.find("\r\n\r\n")) == std::string::npos)
      if (!more(data)) return false;
    if (data.compare(0, 9, "HTTP/1.1 ") != 0) throw Error(0, "answer: it is not HTTP/1.1");
    answer.status = std::atoi(data.c_str() + 9);
    size_t length = 0;
    bool close = false, json_length = false;
    for (size_t at = data.find("\r\n") + 2; at < end; at = data.find("\r\n", at) + 2) {
      const std::string line = data.substr(at, data.find("\r\n", at) - at);
      const size_t colon = line.find(':');
      if (colon == std::string::npos) throw Error(0, "answer: a line of its head has no colon");
      std::string name = line.substr(0, colon);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      const char* value = line.c_str() + colon + 1;
      if (name == "content-length") length = std::strtoull(value, nullptr, 10);
      if (name == "inference-header-content-length") {
        answer.head = std::strtoull(value, nullptr, 10);
        json_length = true;
      }
      if (name == "connection") close = line.find("close", colon) != std::string::npos;
    }
    answer.body = data.substr(end + 4);
    while (answer.body.size() < length)
      if (!more(answer.body)) return false;
    if (!json_length || answer.head > answer.body.size()) answer.head = answer.body.size();
    if (close) disconnect();
    return true;
  }

  std::string host_;
  int port_;
  int socket_ = -1;
};

}  // namespace kserve
