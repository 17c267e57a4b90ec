#include "serving/core/request.h"

#include <fmt/format.h>

#include <limits>

namespace sluice::serving {

namespace {

[[noreturn]] void wrong_parameter(const std::string& name, const char* what) {
  throw Error(Code::kInvalidArgument, "infer: parameter '" + name + "' must be " + what);
}

uint64_t unsigned_of(const std::string& name, const Parameter& value) {
  if (const auto* u = std::get_if<uint64_t>(&value)) return *u;
  if (const auto* i = std::get_if<int64_t>(&value); i != nullptr && *i >= 0) return static_cast<uint64_t>(*i);
  wrong_parameter(name, "a number that is not negative");
}

bool bool_of(const std::string& name, const Parameter& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  wrong_parameter(name, "true or false");
}

}  // namespace

void check_count(size_t count, size_t most, const char* what) {
  if (count > most)
    throw Error(Code::kTooLarge, fmt::format("infer: {} {}; at most {} are allowed", count, what, most));
}

uint64_t text_bytes(const InferRequest& request) {
  constexpr uint64_t kOfEntry = 256;
  uint64_t bytes = request.model.size() + request.version.size() + request.id.size();
  for (const auto& [name, value] : request.parameters) {
    const auto* const text = std::get_if<std::string>(&value);
    bytes += kOfEntry + name.size() + (text == nullptr ? 0 : text->size());
  }
  for (const Tensor& input : request.inputs) bytes += kOfEntry + input.name.size() + 8 * input.shape.size();
  for (const RequestedOutput& output : request.outputs)
    bytes += kOfEntry + output.name.size() + (output.shared ? output.shared->region.size() : 0);
  return bytes;
}

void check_region(const Tensor& tensor, const SharedRegion& region, const std::string& where) {
  constexpr size_t kLength = sizeof(uint32_t);  // of an element of BYTES, at least
  const bool text = tensor.datatype == DataType::TYPE_STRING;
  uint64_t bytes = text ? kLength : datatype_size(tensor.datatype);
  for (const int64_t dim : tensor.shape)
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes) || bytes > uint64_t{1} << 48)
      throw Error(Code::kTooLarge, where + ": shape: it must be of at most 2^48 bytes, without negative dims");
  if (text ? region.bytes < bytes : region.bytes != bytes)
    throw Error(Code::kInvalidArgument, fmt::format("{}: {} bytes in shared memory; shape and datatype have {}{}",
                                                    where, region.bytes, text ? "at least " : "", bytes));
}

bool RequestOptions::in_sequence() const {
  if (const auto* text = std::get_if<std::string>(&sequence_id)) return !text->empty();
  return std::get<uint64_t>(sequence_id) != 0;
}

RequestOptions options_of(const Parameters& parameters) {
  RequestOptions options;
  for (const auto& [name, value] : parameters) {
    if (name == "sequence_id") {
      if (const auto* text = std::get_if<std::string>(&value))
        options.sequence_id = *text;
      else
        options.sequence_id = unsigned_of(name, value);
    } else if (name == "sequence_start") {
      options.sequence_start = bool_of(name, value);
    } else if (name == "sequence_end") {
      options.sequence_end = bool_of(name, value);
    } else if (name == "priority") {
      options.priority = unsigned_of(name, value);
    } else if (name == "timeout") {
      const uint64_t us = unsigned_of(name, value);
      if (us > static_cast<uint64_t>(std::numeric_limits<int32_t>::max()) * 1000)
        wrong_parameter(name, "microseconds of less than 25 days");
      options.timeout = std::chrono::microseconds(us);
    } else if (name.starts_with("triton_")) {
      throw Error(Code::kInvalidArgument,
                  "infer: parameter '" + name + "': names that begin with triton_ are reserved");
    }
  }
  return options;
}

}  // namespace sluice::serving
