#include "tools/sluice_run/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <regex>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/shape.h"

namespace sluice::run {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr uint64_t kMaxHeader = 1 << 20;

// Of a DType, what .npy calls it, in the order of DType.
constexpr std::array<const char*, 12> kDescriptions = {"|b1", "|u1", "|i1", "<i2", "<i4", "<i8",
                                                       "<f2", "<V2", "<f4", "<f8", "<c8", "<c16"};

api::DType dtype_named(const std::string& path, std::string text) {
  if (text == "|V2") text = "<V2";
  const auto found = std::find(kDescriptions.begin(), kDescriptions.end(), text);
  SLUICE_CHECK_KIND(kUnsupported, found != kDescriptions.end(),
                    "{}: elements are '{}'; they must be booleans, integers or floats in little-endian order", path,
                    text);
  return static_cast<api::DType>(found - kDescriptions.begin());
}

std::vector<int64_t> parse_shape(const std::string& path, const std::string& text) {
  std::vector<int64_t> shape;
  const std::regex number("[0-9]+");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), number); it != std::sregex_iterator(); ++it) {
    SLUICE_CHECK(it->str().size() <= 18, "{}: a dimension is {}; it is too large", path, it->str());
    shape.push_back(std::stoll(it->str()));
  }
  return shape;
}

}  // namespace

api::Tensor read_npy(const std::string& path) {
  InputFile file(path);
  std::array<unsigned char, 12> head{};
  constexpr size_t kVersion1 = 10, kVersion2 = 12;  // bytes before the header's text
  const auto malformed = [&](const char* what) { fail(ErrorKind::kValue, "{}: {}; not a .npy file", path, what); };
  if (file.size() < kVersion1) malformed("it is too short");
  file.read(head.data(), kVersion1);
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) malformed("it begins with other bytes");
  uint64_t length = head[8] | static_cast<uint64_t>(head[9]) << 8;
  if (head[6] > 1) {
    file.read(head.data() + kVersion1, kVersion2 - kVersion1);
    length |= static_cast<uint64_t>(head[10]) << 16 | static_cast<uint64_t>(head[11]) << 24;
  }
  const uint64_t before = head[6] > 1 ? kVersion2 : kVersion1;
  if (length > kMaxHeader || length > file.size() - before) malformed("its header is longer than the file");
  std::string text(length, '\0');
  file.read(text.data(), length);
  std::smatch found;
  const std::regex dictionary(
      R"(\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\),? *\}\s*)");
  if (!std::regex_match(text, found, dictionary)) malformed("its header does not tell one dtype and shape");
  const api::DType dtype = dtype_named(path, found[1]);
  const std::vector<int64_t> shape = parse_shape(path, found[3]);
  SLUICE_CHECK_KIND(kUnsupported, found[2] == "False" || shape.size() < 2,
                    "{}: the array is in column-major order; save numpy.ascontiguousarray(x)", path);
  const uint64_t bytes = checked_bytes(Shape(shape), api::dtype_size(dtype)), data = file.size() - before - length;
  SLUICE_CHECK(bytes == data, "{}: {} bytes of data; its shape needs {}", path, data, bytes);
  api::Tensor tensor(dtype, shape);
  if (bytes > 0) file.read(tensor.raw(), bytes);
  return tensor;
}

void write_npy(const std::string& path, const api::Tensor& tensor) {
  std::string shape;
  for (const int64_t dim : tensor.shape()) shape += fmt::format("{}, ", dim);
  if (tensor.shape().size() > 1) shape.resize(shape.size() - 2);
  if (tensor.shape().size() == 1) shape.resize(shape.size() - 1);
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 kDescriptions.at(static_cast<size_t>(tensor.dtype())), shape);
  constexpr size_t kBefore = 10, kUnit = 64;  // the data begins at a multiple of it
  text.resize((kBefore + text.size() + 1 + kUnit - 1) / kUnit * kUnit - kBefore - 1, ' ');
  text += '\n';
  std::ofstream file(path, std::ios::binary);
  file << kMagic << '\1' << '\0' << static_cast<char>(text.size() & 0xff) << static_cast<char>(text.size() >> 8)
       << text;
  file.write(static_cast<const char*>(tensor.raw()), static_cast<std::streamsize>(tensor.bytes()));
  file.close();
  SLUICE_CHECK_KIND(kIo, file, "{}: cannot be written: {}", path, std::strerror(errno));
}

}  // namespace sluice::run
