#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "fuzz_targets/targets.h"
#include "serving/core/error.h"
#include "serving/http/request_head.h"

namespace sluice::fuzz {

namespace {

// The plainest reader there can be finds this in a header: lines, names up to the colon, values without blanks.
struct Plain {
  std::vector<std::string> hosts, lengths, encodings;
};
Plain plain_reading(const std::string& raw) {
  Plain plain;
  const size_t first = raw.find("\r\n");
  for (size_t at = first + 2; at < raw.size();) {
    const size_t end = raw.find("\r\n", at);
    const std::string line = raw.substr(at, end - at);
    at = end + 2;
    expect(line.find('\n') == std::string::npos, "http_head: a bare line feed was taken", raw);
    expect(line.empty() || (line[0] != ' ' && line[0] != '\t'), "http_head: a folded line was taken", raw);
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon), value = line.substr(colon + 1);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto blank = [](char c) { return c == ' ' || c == '\t'; };
    while (!value.empty() && blank(value.front())) value.erase(0, 1);
    while (!value.empty() && blank(value.back())) value.pop_back();
    if (name == "host") plain.hosts.push_back(value);
    if (name == "content-length") plain.lengths.push_back(value);
    if (name == "transfer-encoding") plain.encodings.push_back(value);
  }
  return plain;
}

void check_route(const serving::RequestHead::Parser& parser, const std::string& raw) {
  const auto method = parser.get().method_string();
  const auto target = parser.get().target();
  try {
    const serving::Route route =
        serving::route_of({method.data(), method.size()}, {target.data(), target.size()}, false);
    for (const std::string* name : {&route.model, &route.version}) {
      expect(name->find_first_of(std::string("/\\%\r\n\0 ", 8)) == std::string::npos && !name->starts_with("."),
             "http_head: a name that can lead out of a folder", raw);
      expect(name->size() <= 128, "http_head: a long name", raw);
    }
  } catch (const serving::HttpError& error) {
    expect(error.status() == 400 || error.status() == 404 || error.status() == 405, "http_head: status of a path", raw);
  }
}

}  // namespace

int http_head(const uint8_t* data, size_t size) {
  constexpr uint64_t kMostOfABody = 1 << 20;
  std::string raw(reinterpret_cast<const char*>(data), size);
  const size_t end = raw.find("\r\n\r\n");  // as the reader cuts it
  raw = end == std::string::npos ? raw + "\r\n\r\n" : raw.substr(0, end + 4);
  if (raw.size() > serving::kLongestHead) return 0;
  serving::RequestHead::Parser parser;
  serving::RequestHead head;
  try {
    head = serving::read_head(raw, kMostOfABody, parser);
  } catch (const serving::HttpError& error) {
    expect(error.status() >= 400 && error.status() < 600, "http_head: status of a refusal", raw);
    return 0;
  } catch (const serving::Error& error) {
    expect(error.code() == serving::Code::kUnsupported, "http_head: kind of a refusal", error.what());
    return 0;
  }
  const Plain plain = plain_reading(raw);
  expect(plain.hosts.size() == 1 || (plain.hosts.empty() && parser.get().version() == 10), "http_head: hosts", raw);
  expect(plain.encodings.size() + plain.lengths.size() <= 1, "http_head: two readings of where the body ends", raw);
  expect(head.chunked == (plain.encodings.size() == 1), "http_head: chunked or not", raw);
  expect(head.length == (plain.lengths.empty() ? 0 : std::stoull(plain.lengths[0])), "http_head: another length", raw);
  expect(head.length <= kMostOfABody, "http_head: a body over the limit", raw);
  check_route(parser, raw);
  return 0;
}

}  // namespace sluice::fuzz
