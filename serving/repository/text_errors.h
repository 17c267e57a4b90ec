#pragma once
#include <string>
#include <vector>

namespace google::protobuf {
class Message;
}

namespace sluice::serving {

// Fields of configs that tune what is not here, and so may be passed over: their message and name.
bool only_tunes(const std::string& message, const std::string& field);

// Reads protobuf's text format. "", or up to four errors as "<file>:<line>:<column>: <what>". Fields that only tune are
// added to `passed_over`, as "<file>:<line>: '<field>'".
std::string parse_text(const std::string& text, const std::string& file, google::protobuf::Message& to,
                       std::vector<std::string>& passed_over);

}  // namespace sluice::serving
