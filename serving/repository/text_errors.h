#pragma once
#include <string>

namespace google::protobuf {
class Message;
}

namespace sluice::serving {

// Reads protobuf's text format. "", or up to four errors as "<file>:<line>:<column>: <what>".
std::string parse_text(const std::string& text, const std::string& file, google::protobuf::Message& to);

}  // namespace sluice::serving
