#pragma once
// Keys of tables, written as bytes: parts that differ give keys that differ, whatever stands before and after them.
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/attr.h"
#include "base/device.h"
#include "base/tensor_spec.h"

namespace sluice {

class Key {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> Key& add(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    bytes_.append(bytes, sizeof(T));
    return *this;
  }
  Key& add(std::string_view text) {
    add(text.size());
    bytes_.append(text);
    return *this;
  }
  Key& add(const std::string& text) { return add(std::string_view(text)); }
  Key& add(const Shape& shape) {
    add(shape.rank());
    for (const int64_t dim : shape) add(dim);
    return *this;
  }
  Key& add(const TensorType& type) { return add(type.dtype).add(type.shape); }
  Key& add(const TensorSpec& spec) { return add(spec.dtype).add(spec.shape).add(spec.strides); }
  Key& add(const DeviceId& device) { return add(device.rank).add(device.kind.str()).add(device.index); }
  Key& add(const Attr& attr);  // its type and value

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace sluice
