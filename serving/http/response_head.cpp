#include "serving/http/response_head.h"

#include <fmt/format.h>

#include <boost/beast/http/status.hpp>

namespace sluice::serving {

std::string text_of(const ResponseHead& of) {
  const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(of.status));
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n", of.status,
                                 std::string_view(reason.data(), reason.size()), of.type, of.bytes);
  if (of.status == 401) head += "WWW-Authenticate: Bearer\r\n";
  if (of.status == 501) head += "Accept-Encoding: gzip, deflate\r\n";
  for (const auto& [name, value] : of.headers) head += name + ": " + value + "\r\n";
  head += of.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

std::string events_head(bool keep_alive) {
  return fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
      "Transfer-Encoding: chunked\r\nConnection: {}\r\n\r\n",
      keep_alive ? "keep-alive" : "close");
}

std::string no_place_answer() {
  const std::string body = "{\"error\":\"server: all connections are taken; ask again\"}";
  return text_of(ResponseHead{503, "application/json", body.size(), {{"Retry-After", "1"}}, false}) + body;
}

}  // namespace sluice::serving
