#pragma once
// Messages as the wire has them, counted before they are read and until they are gone. Only for the sources of this
// folder.
#include <grpcpp/grpcpp.h>

#include "serving/core/error.h"
#include "serving/core/memory_budget.h"
#include "serving/grpc/message_memory.h"

namespace sluice::serving {

// So small are calls about the server and its models, whose memory is their connection's: they are answered whatever
// requests hold.
inline constexpr uint64_t kSmallMessage = 4096;

// Reads a message and lets go of its bytes. `held`: what the message counts, from now on, where that is more than
// `uncounted`. Throws kInvalidArgument for bytes that are no such message, and what the share does.
template <class Message>
void read_message(const grpc::ByteBuffer& bytes, Message& message, const MemoryPtr& share, Held& held,
                  uint64_t uncounted = 0) {
  const auto wrong = [] {
    return Error(Code::kInvalidArgument, "request: it cannot be read: it is no message of this call");
  };
  auto& all = const_cast<grpc::ByteBuffer&>(bytes);  // the call's own, which nobody reads behind this
  std::optional<uint64_t> size;
  {
    grpc::ProtoBufferReader wire(&all);
    size = memory_of_message(wire, *Message::descriptor());
  }
  if (!size) throw wrong();
  if (all.Length() + *size > uncounted) held = Held(share, all.Length() + *size);
  if (!grpc::SerializationTraits<Message>::Deserialize(&all, &message).ok()) throw wrong();
  all.Clear();
  held.shrink(*size);
}

// `held`: what the bytes count, until the client has them.
template <class Message>
void write_message(const Message& message, grpc::ByteBuffer& bytes, const MemoryPtr& share, Held& held,
                   uint64_t uncounted = 0) {
  const uint64_t size = message.ByteSizeLong();
  if (size > uncounted) held = Held(share, size);
  bool own = false;
  const grpc::Status status = grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
  if (!status.ok()) throw Error(Code::kInternal, "response: it cannot be written");
}

}  // namespace sluice::serving
