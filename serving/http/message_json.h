#pragma once
// Messages as JSON, the way Triton's clients expect it: fields by their own names, defaults too, enums by name, 64-bit
// integers as numbers, maps as objects. Fields of a oneof that is not set are left out.
#include <google/protobuf/message.h>

#include <string>

namespace sluice::serving {

std::string to_json(const google::protobuf::Message& message);

}  // namespace sluice::serving
