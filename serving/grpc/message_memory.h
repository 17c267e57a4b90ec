#pragma once
// The memory that a message will take, before it is read: a few bytes may say "an empty tensor" many times over. No
// grpc++ here.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>
#include <optional>

namespace sluice::serving {

// An upper bound of what a message of this type takes once it has been read, and while it is. Nothing where it is no
// such message.
std::optional<uint64_t> memory_of_message(google::protobuf::io::ZeroCopyInputStream& bytes,
                                          const google::protobuf::Descriptor& type);

}  // namespace sluice::serving
