#pragma once
// The header of a response. No network here.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::serving {

struct ResponseHead {
  int status = 200;
  std::string_view type = "application/json";
  size_t bytes = 0;  // of the body
  std::vector<std::pair<std::string, std::string>> headers = {};
  bool keep_alive = true;
};
std::string text_of(const ResponseHead& head);
// The head of a body in chunks, each an event.
std::string events_head(bool keep_alive);
// The answer to a client for whom there is no place: "HTTP/1.1 503 .." and a body of JSON.
std::string no_place_answer();

}  // namespace sluice::serving
