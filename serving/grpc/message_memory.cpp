#include "serving/grpc/message_memory.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>

namespace sluice::serving {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

constexpr int kDeepest = 64;

// Bytes of memory, each no less than what protobuf and the allocator need.
constexpr uint64_t kOfMessage = 96, kOfField = 40;  // an object: itself, and each field that it may have
constexpr uint64_t kOfText = 96;                    // beside its characters
constexpr uint64_t kOfNumber = 24;                  // in a list that grows to twice its size, old and new at once
constexpr uint64_t kOfUnknown = 64;

class Walk {
 public:
  explicit Walk(google::protobuf::io::ZeroCopyInputStream& bytes) : in_(&bytes) {}

  // A message up to the limit, or, in a group, to its end. False where it is none.
  bool message(const Descriptor* type, int group, int depth) {
    if (depth > kDeepest) return false;
    bytes_ += kOfMessage + kOfField * static_cast<uint64_t>(type == nullptr ? 0 : type->field_count());
    while (const uint32_t tag = in_.ReadTag()) {
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_END_GROUP) return number == group;
      if (!field(type == nullptr ? nullptr : type->FindFieldByNumber(number), tag, number, depth)) return false;
    }
    return group == 0 && in_.ConsumedEntireMessage();
  }
  uint64_t bytes() const { return bytes_; }

 private:
  bool field(const FieldDescriptor* field, uint32_t tag, int number, int depth) {
    uint64_t varint = 0;
    uint32_t fixed = 0, size = 0;
    if (field == nullptr) bytes_ += kOfUnknown;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT: bytes_ += kOfNumber; return in_.ReadVarint64(&varint);
      case WireFormatLite::WIRETYPE_FIXED64: bytes_ += kOfNumber; return in_.ReadLittleEndian64(&varint);
      case WireFormatLite::WIRETYPE_FIXED32: bytes_ += kOfNumber; return in_.ReadLittleEndian32(&fixed);
      case WireFormatLite::WIRETYPE_START_GROUP: return message(nullptr, number, depth + 1);
      case WireFormatLite::WIRETYPE_END_GROUP: return false;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: break;
    }
    if (!in_.ReadVarint32(&size) || size > INT32_MAX) return false;
    if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE) {
      const auto limit = in_.PushLimit(static_cast<int>(size));
      if (!message(field->message_type(), 0, depth + 1) || in_.BytesUntilLimit() != 0) return false;
      in_.PopLimit(limit);
      return true;
    }
    if (field != nullptr && field->is_packable()) return numbers(*field, size);
    bytes_ += kOfText + size;
    return in_.Skip(static_cast<int>(size));
  }

  // A packed list.
  bool numbers(const FieldDescriptor& field, uint32_t size) {
    const bool fixed = field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT ||
                       field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
                       field.type() == FieldDescriptor::TYPE_FIXED32 || field.type() == FieldDescriptor::TYPE_FIXED64 ||
                       field.type() == FieldDescriptor::TYPE_SFIXED32 || field.type() == FieldDescriptor::TYPE_SFIXED64;
    bytes_ += kOfText;
    if (fixed) {
      bytes_ += uint64_t{3} * size;
      return in_.Skip(static_cast<int>(size));
    }
    for (uint32_t left = size; left > 0;) {  // each ends with a byte below 128
      const void* data = nullptr;
      int there = 0;
      if (!in_.GetDirectBufferPointer(&data, &there)) return false;
      const int piece = static_cast<int>(std::min<uint32_t>(left, static_cast<uint32_t>(there)));
      const auto* const first = static_cast<const uint8_t*>(data);
      bytes_ +=
          kOfNumber * static_cast<uint64_t>(std::count_if(first, first + piece, [](uint8_t b) { return b < 128; }));
      left -= static_cast<uint32_t>(piece);
      if (!in_.Skip(piece)) return false;
    }
    return true;
  }

  google::protobuf::io::CodedInputStream in_;
  uint64_t bytes_ = 0;
};

}  // namespace

std::optional<uint64_t> memory_of_message(google::protobuf::io::ZeroCopyInputStream& bytes, const Descriptor& type) {
  Walk walk(bytes);
  if (!walk.message(&type, 0, 0)) return std::nullopt;
  return walk.bytes();
}

}  // namespace sluice::serving
