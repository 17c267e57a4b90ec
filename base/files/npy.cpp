#include "base/files/npy.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <regex>
#include <string_view>

#include "base/dtype.h"
#include "base/error.h"
#include "base/files/file.h"

namespace sluice {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr uint64_t kMaxHeader = 1 << 20;

struct Described {
  DType dtype;
  std::string_view text;
};
constexpr std::array<Described, 12> kDescriptions = {{{DType::kBool, "|b1"},
                                                      {DType::kUInt8, "|u1"},
                                                      {DType::kInt8, "|i1"},
                                                      {DType::kInt16, "<i2"},
                                                      {DType::kInt32, "<i4"},
                                                      {DType::kInt64, "<i8"},
                                                      {DType::kFloat16, "<f2"},
                                                      {DType::kBFloat16, "<V2"},
                                                      {DType::kFloat32, "<f4"},
                                                      {DType::kFloat64, "<f8"},
                                                      {DType::kComplex64, "<c8"},
                                                      {DType::kComplex128, "<c16"}}};

DType dtype_named(const std::string& path, const std::string& text) {
  for (const Described& known : kDescriptions)
    if (known.text == (text == "|V2" ? "<V2" : text)) return known.dtype;
  fail(ErrorKind::kUnsupported,
       "{}: elements are '{}'; they must be booleans, integers or floats in little-endian order", path, text);
}

std::string_view text_of(DType dtype) {
  for (const Described& known : kDescriptions)
    if (known.dtype == dtype) return known.text;
  fail(ErrorKind::kUnsupported, "npy: dtype {} has no name there", dtype_name(dtype));
}

Shape parse_shape(const std::string& path, const std::string& text) {
  std::vector<int64_t> shape;
  const std::regex number("[0-9]+");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), number); it != std::sregex_iterator(); ++it) {
    SLUICE_CHECK_KIND(kValue, it->str().size() <= 18, "{}: a dimension is {}; it is too large", path, it->str());
    shape.push_back(std::stoll(it->str()));
  }
  return Shape(shape);
}

}  // namespace

NpyArray read_npy(const std::string& path) {
  InputFile file(path);
  std::array<unsigned char, 12> head{};
  constexpr size_t kVersion1 = 10, kVersion2 = 12;  // bytes before the header's text
  const auto malformed = [&](const char* what) { fail(ErrorKind::kValue, "{}: {}; not a .npy file", path, what); };
  if (file.size() < kVersion1) malformed("it is too short");
  file.read(head.data(), kVersion1);
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) malformed("it begins with other bytes");
  uint64_t length = head[8] | static_cast<uint64_t>(head[9]) << 8;
  if (head[6] > 1) {
    if (file.size() < kVersion2) malformed("it is too short");
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
  NpyArray array{{dtype_named(path, found[1]), parse_shape(path, found[3])}, {}};
  SLUICE_CHECK_KIND(kUnsupported, found[2] == "False" || array.type.shape.rank() < 2,
                    "{}: the array is in column-major order; save numpy.ascontiguousarray(x)", path);
  const uint64_t bytes = checked_bytes(array.type.shape, dtype_size(array.type.dtype)),
                 data = file.size() - before - length;
  SLUICE_CHECK_KIND(kValue, bytes == data, "{}: {} bytes of data; its shape needs {}", path, data, bytes);
  array.data.resize(bytes);
  if (bytes > 0) file.read(array.data.data(), bytes);
  return array;
}

void write_npy(const std::string& path, const TensorType& type, const void* data) {
  std::string shape;
  for (int i = 0; i < type.shape.rank(); ++i) shape += fmt::format("{}, ", type.shape[i]);
  if (type.shape.rank() > 1) shape.resize(shape.size() - 2);
  if (type.shape.rank() == 1) shape.resize(shape.size() - 1);
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", text_of(type.dtype), shape);
  constexpr size_t kBefore = 10, kUnit = 64;  // the data begins at a multiple of it
  text.resize((kBefore + text.size() + 1 + kUnit - 1) / kUnit * kUnit - kBefore - 1, ' ');
  text += '\n';
  std::ofstream file(path, std::ios::binary);
  file << kMagic << '\1' << '\0' << static_cast<char>(text.size() & 0xff) << static_cast<char>(text.size() >> 8)
       << text;
  file.write(static_cast<const char*>(data),
             static_cast<std::streamsize>(checked_bytes(type.shape, dtype_size(type.dtype))));
  file.close();
  SLUICE_CHECK_KIND(kIo, file, "{}: cannot be written: {}", path, std::strerror(errno));
}

}  // namespace sluice
