#include "serving/execution/classify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "serving/core/buffers.h"

namespace sluice::serving {

namespace {

// Elements of 16 bits, as numbers.
struct Half {
  uint16_t bits;
  operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
    if (exponent == 0) {
      const float small = std::ldexp(static_cast<float>(fraction), -24);
      return sign != 0 ? -small : small;
    }
    const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
    return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
  }
};
struct Brain {
  uint16_t bits;
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <class T>
std::string text_of(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>)
    return std::to_string(static_cast<float>(value));
  else
    return std::to_string(value);
}

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return std::isnan(static_cast<double>(value));
}

template <class T>
void top(const uint8_t* data, size_t n, size_t k, const std::vector<std::string>& labels, std::string& out) {
  const auto value = [&](size_t i) {
    T v;
    std::memcpy(&v, data + i * sizeof(T), sizeof(T));
    return v;
  };
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                    [&](uint32_t a, uint32_t b) {
                      const T x = value(a), y = value(b);
                      if (is_nan(x) != is_nan(y)) return is_nan(y);
                      if (!is_nan(x) && x != y) return x > y;
                      return a < b;
                    });
  for (size_t i = 0; i < k; ++i) {
    const uint32_t index = order[i];
    std::string text = text_of(value(index)) + ":" + std::to_string(index);
    if (index < labels.size() && !labels[index].empty()) text += ":" + labels[index];
    const auto length = static_cast<uint32_t>(text.size());
    out.append(reinterpret_cast<const char*>(&length), sizeof length);
    out += text;
  }
}

using Top = void (*)(const uint8_t*, size_t, size_t, const std::vector<std::string>&, std::string&);
Top top_of(DataType type) {
  switch (type) {
    case DataType::TYPE_BOOL:
    case DataType::TYPE_UINT8: return top<uint8_t>;
    case DataType::TYPE_UINT16: return top<uint16_t>;
    case DataType::TYPE_UINT32: return top<uint32_t>;
    case DataType::TYPE_UINT64: return top<uint64_t>;
    case DataType::TYPE_INT8: return top<int8_t>;
    case DataType::TYPE_INT16: return top<int16_t>;
    case DataType::TYPE_INT32: return top<int32_t>;
    case DataType::TYPE_INT64: return top<int64_t>;
    case DataType::TYPE_FP16: return top<Half>;
    case DataType::TYPE_BF16: return top<Brain>;
    case DataType::TYPE_FP32: return top<float>;
    case DataType::TYPE_FP64: return top<double>;
    default: return nullptr;
  }
}

}  // namespace

void classify(Tensor& tensor, uint32_t classes, const std::vector<std::string>& labels, bool batched) {
  const Top top = top_of(tensor.datatype);
  const std::string where = "infer: output '" + tensor.name + "': classification: ";
  if (top == nullptr) throw Error(Code::kInvalidArgument, where + "it is text; numbers can be classified");
  const size_t size = datatype_size(tensor.datatype), all = tensor.bytes / size;
  constexpr size_t kMost = 1000000;
  if (all > kMost)
    throw Error(Code::kInvalidArgument, where + std::to_string(all) + " elements; at most " + std::to_string(kMost));
  const size_t rows = batched && !tensor.shape.empty() ? static_cast<size_t>(tensor.shape[0]) : 1;
  const size_t n = rows == 0 ? 0 : all / rows, k = std::min<size_t>(classes, n);
  std::string out;
  for (size_t r = 0; r < rows; ++r)
    top(static_cast<const uint8_t*>(tensor.data.get()) + r * n * size, n, k, labels, out);
  tensor.datatype = DataType::TYPE_STRING;
  tensor.shape.clear();
  if (batched) tensor.shape.push_back(static_cast<int64_t>(rows));
  tensor.shape.push_back(static_cast<int64_t>(k));
  tensor.bytes = out.size();
  tensor.data = BufferPool(0).take(out.size());
  if (!out.empty()) std::memcpy(tensor.data.get(), out.data(), out.size());
}

}  // namespace sluice::serving
