#include "serving/http/json_tensors.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "serving/core/json_string.h"

namespace sluice::serving {

namespace {

namespace json = boost::json;

[[noreturn]] void wrong_data(const std::string& where, const std::string& what) {
  throw Error(Code::kInvalidArgument, where + ": data: " + what);
}

// Visits the elements of nested lists, in order.
template <class Visit>
void visit(const json::value& data, const Visit& visitor) {
  if (!data.is_array()) return visitor(data);
  for (const json::value& item : data.get_array()) visit(item, visitor);  // as deep as the parser allows
}

template <class T>
T number_of(const json::value& value, const std::string& where, DataType type) {
  const auto refuse = [&]() -> T {
    const std::string text = json::serialize(value);
    wrong_data(where,
               fmt::format("{} is no {}", text.size() > 40 ? text.substr(0, 40) + "..." : text, datatype_name(type)));
  };
  if constexpr (std::is_same_v<T, bool>) {
    if (value.is_bool()) return value.get_bool();
    if (value.is_int64() && (value.get_int64() == 0 || value.get_int64() == 1)) return value.get_int64() == 1;
    return refuse();
  } else if constexpr (std::is_floating_point_v<T>) {
    if (value.is_double()) {
      const bool finite = std::isfinite(value.get_double());
      if (finite && std::abs(value.get_double()) > static_cast<double>(std::numeric_limits<T>::max())) {
        // The shortest text of the largest float is a little more than it.
        constexpr double kRoundsToInfinity = 3.4028235677973366e38;
        if (std::abs(value.get_double()) >= kRoundsToInfinity) return refuse();
        return std::copysign(std::numeric_limits<T>::max(), static_cast<T>(value.get_double() > 0 ? 1 : -1));
      }
      return static_cast<T>(value.get_double());
    }
    if (value.is_int64()) return static_cast<T>(value.get_int64());
    if (value.is_uint64()) return static_cast<T>(value.get_uint64());
    return refuse();
  } else {
    if (value.is_int64() && std::in_range<T>(value.get_int64())) return static_cast<T>(value.get_int64());
    if (value.is_uint64() && std::in_range<T>(value.get_uint64())) return static_cast<T>(value.get_uint64());
    return refuse();
  }
}

template <class T>
void take_numbers(Tensor& tensor, const json::value& data, const std::string& where, uint64_t count) {
  T* const out = static_cast<T*>(tensor.data.get());
  uint64_t n = 0;
  visit(data, [&](const json::value& value) {
    if (n < count) out[n] = number_of<T>(value, where, tensor.datatype);
    ++n;
  });
  if (n != count) wrong_data(where, fmt::format("{} elements; the shape has {}", n, count));
}

void take_strings(Tensor& tensor, const json::value& data, const std::string& where, uint64_t count,
                  BufferPool& buffers, size_t most, const MemoryPtr& share) {
  uint64_t n = 0, bytes = 0;
  visit(data, [&](const json::value& value) {
    if (!value.is_string()) wrong_data(where, "an element of BYTES must be a string");
    bytes += sizeof(uint32_t) + value.get_string().size();
    ++n;
  });
  if (n != count) wrong_data(where, fmt::format("{} elements; the shape has {}", n, count));
  if (bytes > most)
    throw Error(Code::kTooLarge, fmt::format("{}: {} bytes; at most {} are allowed", where, bytes, most));
  tensor.bytes = bytes;
  tensor.data = buffers.take(bytes, share);
  char* out = static_cast<char*>(tensor.data.get());
  visit(data, [&](const json::value& value) {
    const auto size = static_cast<uint32_t>(value.get_string().size());
    std::memcpy(out, &size, sizeof size);
    std::memcpy(out + sizeof size, value.get_string().data(), size);
    out += sizeof size + size;
  });
}

template <class T>
void append_numbers(Text& out, const Tensor& tensor, size_t first, size_t end_of_part) {
  const T* const values = static_cast<const T*>(tensor.data.get());
  char text[64];
  for (size_t i = first; i < end_of_part; ++i) {
    if (i > first) out += ',';
    if constexpr (std::is_same_v<T, bool>) {
      out += values[i] ? "true" : "false";
      continue;
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(values[i])) {
        out += std::isnan(values[i]) ? "NaN" : values[i] > 0 ? "Infinity" : "-Infinity";
        continue;
      }
      const auto end = std::to_chars(text, text + sizeof text, values[i]).ptr;
      const std::string_view digits(text, static_cast<size_t>(end - text));
      out += digits;
      if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
    } else {
      out.append(text, std::to_chars(text, text + sizeof text, values[i]).ptr);
    }
  }
}

void append_strings(Text& out, const Tensor& tensor) {
  size_t number = 0;
  const char* at = static_cast<const char*>(tensor.data.get());
  const char* const end = at + tensor.bytes;
  for (bool first = true; static_cast<size_t>(end - at) >= sizeof(uint32_t); first = false) {
    uint32_t size = 0;
    std::memcpy(&size, at, sizeof size);
    at += sizeof size;
    if (size > static_cast<size_t>(end - at)) break;
    if (!first) out += ',';
    if (!is_utf8({at, size}))
      throw Error(Code::kInvalidArgument,
                  fmt::format("infer: output '{}': element {} is no UTF-8, which strings of JSON "
                              "are; ask for binary data",
                              tensor.name, number));
    ++number;
    out += json_string({at, size});
    at += size;
  }
}

// Calls f(T{}) for the type that holds elements of `type`.
template <class F>
bool with_type(DataType type, const F& f) {
  switch (type) {
    case DataType::TYPE_BOOL: f(bool{}); return true;
    case DataType::TYPE_UINT8: f(uint8_t{}); return true;
    case DataType::TYPE_UINT16: f(uint16_t{}); return true;
    case DataType::TYPE_UINT32: f(uint32_t{}); return true;
    case DataType::TYPE_UINT64: f(uint64_t{}); return true;
    case DataType::TYPE_INT8: f(int8_t{}); return true;
    case DataType::TYPE_INT16: f(int16_t{}); return true;
    case DataType::TYPE_INT32: f(int32_t{}); return true;
    case DataType::TYPE_INT64: f(int64_t{}); return true;
    case DataType::TYPE_FP32: f(float{}); return true;
    case DataType::TYPE_FP64: f(double{}); return true;
    default: return false;
  }
}

}  // namespace

uint64_t elements_of(const std::vector<int64_t>& shape, const std::string& where) {
  uint64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0)
      throw Error(Code::kInvalidArgument, fmt::format("{}: shape: {}; dims must not be negative", where, dim));
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(dim), &count) || count > uint64_t{1} << 48)
      throw Error(Code::kTooLarge, where + ": shape: more than 2^48 elements");
  }
  return count;
}

void take_json(Tensor& tensor, const json::value& data, const std::string& where, BufferPool& buffers, size_t most,
               const MemoryPtr& share) {
  if (!data.is_array()) wrong_data(where, "it must be a list");
  const uint64_t count = elements_of(tensor.shape, where);
  if (tensor.datatype == DataType::TYPE_STRING) return take_strings(tensor, data, where, count, buffers, most, share);
  const bool known = with_type(tensor.datatype, [&](auto t) {
    using T = decltype(t);
    if (count > most / sizeof(T))
      throw Error(Code::kTooLarge, fmt::format("{}: {} elements; at most {} bytes are allowed", where, count, most));
    tensor.bytes = count * sizeof(T);
    tensor.data = buffers.take(tensor.bytes, share);
    take_numbers<T>(tensor, data, where, count);
  });
  if (!known)
    wrong_data(where, fmt::format("{} has no form in JSON; send it as binary data", datatype_name(tensor.datatype)));
}

void append_elements(Text& out, const Tensor& tensor, size_t first, size_t end) {
  if (!with_type(tensor.datatype, [&](auto t) { append_numbers<decltype(t)>(out, tensor, first, end); }))
    throw Error(Code::kInvalidArgument, fmt::format("infer: output '{}': {} has no form in JSON; ask for binary data",
                                                    tensor.name, datatype_name(tensor.datatype)));
}

Turns append_json(Text& out, const Tensor& tensor) {
  out += '[';
  if (tensor.datatype == DataType::TYPE_STRING) {
    append_strings(out, tensor);
  } else {
    const size_t count = tensor.bytes / std::max<size_t>(datatype_size(tensor.datatype), 1);
    for (size_t first = 0; first == 0 || first < count; first += kElementsOfTurn) {
      if (first > 0) {
        co_yield Turn();
        out += ',';
      }
      append_elements(out, tensor, first, std::min(count, first + kElementsOfTurn));
    }
  }
  out += ']';
}

}  // namespace sluice::serving
