#include "tools/sluice_run/values.h"

#include <fmt/format.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>

#include "base/dtype.h"
#include "base/error.h"
#include "tools/sluice_run/npy.h"

namespace sluice::run {
namespace {

// Calls f with a null pointer to the type that holds an element.
template <class F>
void with_type(api::DType dtype, F&& f) {
  switch (dtype) {
    case api::DType::kBool: return f(static_cast<bool*>(nullptr));
    case api::DType::kUInt8: return f(static_cast<uint8_t*>(nullptr));
    case api::DType::kInt8: return f(static_cast<int8_t*>(nullptr));
    case api::DType::kInt16: return f(static_cast<int16_t*>(nullptr));
    case api::DType::kInt32: return f(static_cast<int32_t*>(nullptr));
    case api::DType::kInt64: return f(static_cast<int64_t*>(nullptr));
    case api::DType::kFloat16: return f(static_cast<Float16*>(nullptr));
    case api::DType::kBFloat16: return f(static_cast<BFloat16*>(nullptr));
    case api::DType::kFloat32: return f(static_cast<float*>(nullptr));
    case api::DType::kFloat64: return f(static_cast<double*>(nullptr));
    case api::DType::kComplex64: return f(static_cast<std::complex<float>*>(nullptr));
    case api::DType::kComplex128: return f(static_cast<std::complex<double>*>(nullptr));
  }
}

void put(double value, Float16& to) { to = to_float16(static_cast<float>(value)); }
void put(double value, BFloat16& to) { to = to_bfloat16(static_cast<float>(value)); }
template <class T>
void put(double value, std::complex<T>& to) {
  to = static_cast<T>(value);
}
template <class T>
void put(double value, T& to) {
  if constexpr (std::is_integral_v<T>) {
    // 2^63 is the first that is too large for int64; the limits of the others are exact.
    const bool fits = value == std::floor(value) && value >= static_cast<double>(std::numeric_limits<T>::min()) &&
                      value <= static_cast<double>(std::numeric_limits<T>::max()) && value < 0x1p63;
    if (!fits) throw std::out_of_range("it does not fit");
  }
  to = static_cast<T>(value);
}

template <class T>
std::complex<double> number(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return to_float(value);
  else if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return {value.real(), value.imag()};
}

std::complex<double> number_at(const api::Tensor& tensor, int64_t i) {
  std::complex<double> value;
  with_type(tensor.dtype(), [&](auto* type) { value = number(static_cast<decltype(type)>(tensor.raw())[i]); });
  return value;
}

bool is_floating(api::DType dtype) { return dtype >= api::DType::kFloat16; }

// Prints elements as shortest decimals that are read back as the same value.
std::string text_at(const api::Tensor& tensor, int64_t i) {
  const auto part = [&](double value) {
    if (tensor.dtype() == api::DType::kFloat64 || tensor.dtype() == api::DType::kComplex128)
      return fmt::format("{}", value);
    return fmt::format("{}", static_cast<float>(value));
  };
  if (tensor.dtype() == api::DType::kBool) return static_cast<const bool*>(tensor.raw())[i] ? "true" : "false";
  if (tensor.dtype() == api::DType::kInt64) return std::to_string(static_cast<const int64_t*>(tensor.raw())[i]);
  const std::complex<double> value = number_at(tensor, i);
  if (!is_floating(tensor.dtype())) return fmt::format("{:.0f}", value.real());
  if (tensor.dtype() < api::DType::kComplex64) return part(value.real());
  const std::string imaginary = part(value.imag());
  return part(value.real()) + (imaginary[0] == '-' ? "" : "+") + imaginary + "j";
}

std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> numbers;
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == ',' || text[at] == ' ') {
      ++at;
      continue;
    }
    size_t used = 0;
    numbers.push_back(std::stod(text.substr(at), &used));
    at += used;
    if (at < text.size() && text[at] != ',' && text[at] != ' ') throw std::invalid_argument("another character");
  }
  return numbers;
}

std::map<std::string, int64_t> sizes_of_dims(const std::vector<api::Port>& ports,
                                             const std::vector<std::string>& texts) {
  std::map<std::string, int64_t> sizes;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals), size = equals == std::string::npos ? "" : text.substr(equals + 1);
    SLUICE_CHECK(!size.empty() && size.size() < 10 && size.find_first_not_of("0123456789") == std::string::npos,
                 "--dim '{}': it must be NAME=SIZE, as in --dim batch=8", text);
    bool known = false;
    for (const api::Port& port : ports)
      for (const std::string& dim : port.dims) known |= dim == name;
    SLUICE_CHECK(known, "--dim '{}': no input has a dim of this name; `--info` lists them", text);
    sizes[name] = std::stoll(size);
  }
  return sizes;
}

std::vector<int64_t> shape_of(const api::Port& port, const std::map<std::string, int64_t>& sizes) {
  std::vector<int64_t> shape = port.shape;
  for (size_t a = 0; a < port.dims.size(); ++a)
    if (const auto size = sizes.find(port.dims[a]); size != sizes.end()) shape[a] = size->second;
  return shape;
}

// Integers are 0 and 1, so that they are indices into anything.
api::Tensor random(const api::Port& port, const std::vector<int64_t>& shape, uint64_t seed) {
  api::Tensor tensor(port.dtype, shape);
  std::mt19937_64 generator(seed);
  with_type(port.dtype, [&](auto* type) {
    auto* const data = static_cast<decltype(type)>(tensor.raw());
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const double value = static_cast<double>(generator() >> 11) * 0x1p-53;
      put(is_floating(port.dtype) ? value : std::floor(2 * value), data[i]);
    }
  });
  return tensor;
}

api::Tensor from_numbers(const api::Port& port, const std::vector<int64_t>& shape, const std::string& text) {
  std::vector<double> numbers;
  try {
    numbers = numbers_in(text);
  } catch (const std::exception&) {
    fail(ErrorKind::kValue, "input '{}': '{:.60}'; it must be @FILE.npy, zeros, random, or numbers with commas between",
         port.name, text);
  }
  api::Tensor tensor(port.dtype, shape);
  const auto size = static_cast<size_t>(tensor.size());
  SLUICE_CHECK(numbers.size() == size || numbers.size() == 1,
               "input '{}': {} numbers; {} takes {}, or one for all of them", port.name, numbers.size(), port.str(),
               size);
  with_type(port.dtype, [&](auto* type) {
    auto* const data = static_cast<decltype(type)>(tensor.raw());
    for (size_t i = 0; i < size; ++i) {
      const double value = numbers[numbers.size() == 1 ? 0 : i];
      try {
        put(value, data[i]);
      } catch (const std::out_of_range&) {
        fail(ErrorKind::kValue, "input '{}': {} is no {}; give numbers of the port's dtype", port.name, value,
             api::dtype_name(port.dtype));
      }
    }
  });
  return tensor;
}

api::Tensor from_file(const api::Port& port, const std::string& path) {
  const api::Tensor tensor = read_npy(path);
  SLUICE_CHECK_KIND(kType, tensor.dtype() == port.dtype,
                    "input '{}': {} holds {}; the plan takes {}; save x.astype('{}')", port.name, path, tensor.str(),
                    port.str(), api::dtype_name(port.dtype));
  bool fits = tensor.shape().size() == port.shape.size();
  for (size_t a = 0; fits && a < port.shape.size(); ++a) {
    const bool varies = a < port.dims.size() && !port.dims[a].empty();
    fits = varies ? tensor.shape()[a] <= port.shape[a] : tensor.shape()[a] == port.shape[a];
  }
  SLUICE_CHECK(fits, "input '{}': {} holds {}; the plan takes {}", port.name, path, tensor.str(), port.str());
  return tensor;
}

void show_axis(const api::Tensor& tensor, size_t axis, int64_t at, bool all, std::string& text) {
  constexpr int64_t kEdge = 3;
  if (axis == tensor.shape().size()) {
    text += text_at(tensor, at);
    return;
  }
  int64_t stride = 1;
  for (size_t a = axis + 1; a < tensor.shape().size(); ++a) stride *= tensor.shape()[a];
  const bool last = axis + 1 == tensor.shape().size();
  const std::string between = last ? ", " : ",\n" + std::string(axis + 1, ' ');
  const int64_t n = tensor.shape()[axis];
  text += '[';
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0) text += between;
    if (!all && n > 2 * kEdge && i == kEdge) {
      text += "..." + between;
      i = n - kEdge;
    }
    show_axis(tensor, axis + 1, at + i * stride, all, text);
  }
  text += ']';
}

}  // namespace

std::map<size_t, std::string> by_port(const std::vector<api::Port>& ports, const std::vector<std::string>& texts,
                                      const char* option) {
  std::map<size_t, std::string> found;
  size_t next = 0;
  for (const std::string& text : texts) {
    size_t port = ports.size(), value = 0;
    for (size_t p = 0; p < ports.size(); ++p) {
      if (!text.starts_with(ports[p].name + "=")) continue;
      port = p;
      value = ports[p].name.size() + 1;
    }
    if (port == ports.size()) {
      const size_t equals = text.find('=');
      std::string names;
      for (const api::Port& p : ports) names += (names.empty() ? "" : ", ") + p.name;
      SLUICE_CHECK(equals == std::string::npos || text[0] == '@', "{} '{:.60}': there is no '{}'; the names are {}",
                   option, text, text.substr(0, equals), names);
      SLUICE_CHECK(next < ports.size(), "{} '{:.60}': one too many; the plan has {}: {}", option, text, ports.size(),
                   names);
      port = next;
    }
    next = port + 1;
    SLUICE_CHECK(found.emplace(port, text.substr(value)).second, "{} '{:.60}': '{}' is given twice; give it once",
                 option, text, ports[port].name);
  }
  return found;
}

std::string file_of(const std::string& text) { return text.starts_with('@') ? text.substr(1) : text; }

std::vector<api::Tensor> make_inputs(const std::vector<api::Port>& ports, const InputArguments& arguments) {
  const std::map<size_t, std::string> given = by_port(ports, arguments.inputs, "--input");
  const std::map<std::string, int64_t> sizes = sizes_of_dims(ports, arguments.dims);
  std::vector<api::Tensor> tensors;
  for (size_t p = 0; p < ports.size(); ++p) {
    const api::Port& port = ports[p];
    const auto found = given.find(p);
    const std::string& text = found != given.end() ? found->second : arguments.fill;
    SLUICE_CHECK(!text.empty(), "input '{}': it is not given; add --input={}=@FILE.npy, or --fill=random for all such",
                 port.str(), port.name);
    const std::vector<int64_t> shape = shape_of(port, sizes);
    if (text.starts_with('@'))
      tensors.push_back(from_file(port, text.substr(1)));
    else if (text == "zeros")
      tensors.emplace_back(port.dtype, shape);
    else if (text == "random")
      tensors.push_back(random(port, shape, arguments.seed + p));
    else
      tensors.push_back(from_numbers(port, shape, text));
  }
  return tensors;
}

std::string show(const std::string& name, const api::Tensor& tensor) {
  constexpr int64_t kAll = 1000;  // elements that are all shown
  std::string text = fmt::format("{}: {}\n", name, tensor.str());
  show_axis(tensor, 0, 0, tensor.size() <= kAll, text);
  return text + "\n";
}

std::string difference(const api::Tensor& a, const api::Tensor& b, double tolerance) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return fmt::format("got {}; expected {}", a.str(), b.str());
  int64_t different = 0, first = -1;
  for (int64_t i = 0; i < a.size(); ++i) {
    const std::complex<double> x = number_at(a, i), y = number_at(b, i);
    const bool both_nan = std::isnan(std::abs(x)) && std::isnan(std::abs(y));
    if (x == y || both_nan || std::abs(x - y) <= tolerance * (1 + std::abs(y))) continue;
    if (different++ == 0) first = i;
  }
  if (different == 0) return "";
  return fmt::format("{} of {} elements differ; the first is element {}: got {}, expected {}", different, a.size(),
                     first, text_at(a, first), text_at(b, first));
}

}  // namespace sluice::run
