#include "onnx/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/shape.h"

namespace sluice::onnx {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::vector<std::string> parts_of(const std::string& location, const std::string& where) {
  SLUICE_CHECK(!location.empty() && location.front() != '/' && location.find('\0') == std::string::npos,
               "{}: external data in '{}'; must be a path relative to the model's folder", where, location);
  std::vector<std::string> parts;
  std::istringstream stream(location);
  for (std::string part; std::getline(stream, part, '/');) {
    if (part.empty() || part == ".") continue;
    SLUICE_CHECK(part != "..", "{}: external data in '{}'; must lie beneath the model's folder", where, location);
    parts.push_back(part);
  }
  SLUICE_CHECK(!parts.empty(), "{}: external data in '{}'; must be the name of a file", where, location);
  return parts;
}

// Each part is opened from the one before and may be no link, so that nobody can point elsewhere meanwhile.
Descriptor open_beneath(const std::string& folder, const std::string& location, const std::string& where) {
  const std::vector<std::string> parts = parts_of(location, where);
  Descriptor at(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (size_t i = 0; at.get() >= 0 && i < parts.size(); ++i) {
    const int kind = i + 1 < parts.size() ? O_DIRECTORY : O_NONBLOCK;
    at = Descriptor(openat(at.get(), parts[i].c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | kind));
  }
  if (at.get() < 0 && errno == ELOOP)
    fail(ErrorKind::kValue, "{}: external data in '{}': a part of it is a link; must be a file beneath the folder",
         where, location);
  SLUICE_CHECK_KIND(kIo, at.get() >= 0, "{}: external data in '{}/{}': {}", where, folder, location,
                    std::strerror(errno));
  return at;
}

template <class T, class From>
std::string packed(const From& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  for (int i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values.Get(i));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// What the fields of this dtype hold, as bytes.
std::string typed_data(const format::TensorProto& tensor, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64: return packed<float>(tensor.float_data());
    case DType::kFloat64:
    case DType::kComplex128: return packed<double>(tensor.double_data());
    case DType::kInt64: return packed<int64_t>(tensor.int64_data());
    case DType::kInt32: return packed<int32_t>(tensor.int32_data());
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBFloat16: return packed<uint16_t>(tensor.int32_data());
    default: return packed<uint8_t>(tensor.int32_data());
  }
}

std::string external_data(const format::TensorProto& tensor, const Folder& folder, uint64_t bytes,
                          const std::string& where) {
  std::string location;
  int64_t offset = 0, length = -1;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length") continue;
    const std::string& text = entry.value();
    SLUICE_CHECK(!text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos,
                 "{}: {} of external data is '{}'; must be a number of bytes", where, entry.key(), text);
    (entry.key() == "offset" ? offset : length) = std::stoll(text);
  }
  SLUICE_CHECK(length < 0 || static_cast<uint64_t>(length) >= bytes, "{}: external data of {} bytes; its type has {}",
               where, length, bytes);
  return folder.read(location, offset, static_cast<int64_t>(bytes), where);
}

Shape checked_shape(const google::protobuf::RepeatedField<int64_t>& dims, DType dtype, const std::string& where) {
  SLUICE_CHECK_KIND(kUnsupported, dims.size() <= kMaxRank, "{}: {} dims; at most {} are supported", where, dims.size(),
                    kMaxRank);
  Shape shape;
  for (const int64_t dim : dims) {
    SLUICE_CHECK(dim >= 0, "{}: a dim of {}; must not be negative", where, dim);
    shape.push_back(dim);
  }
  try {
    checked_bytes(shape, dtype_size(dtype));
  } catch (const Error& e) {
    fail(e.kind(), "{}: {}", where, e.what());
  }
  return shape;
}

DType checked_dtype(int32_t data_type, const std::string& where) {
  const std::optional<DType> dtype = dtype_of(data_type);
  SLUICE_CHECK_KIND(kUnsupported, dtype, "{}: type {}; Sluice has no tensors of it", where, data_type_name(data_type));
  return *dtype;
}

constexpr uint64_t kMostSparse = 256 << 20;  // bytes of a tensor whose file has few of them

constexpr std::pair<int32_t, DType> kDTypes[] = {
    {1, DType::kFloat32},  {2, DType::kUInt8},      {3, DType::kInt8},        {5, DType::kInt16},
    {6, DType::kInt32},    {7, DType::kInt64},      {9, DType::kBool},        {10, DType::kFloat16},
    {11, DType::kFloat64}, {14, DType::kComplex64}, {15, DType::kComplex128}, {16, DType::kBFloat16},
};

}  // namespace

std::string Folder::read(const std::string& location, int64_t offset, int64_t length, const std::string& where) const {
  const Descriptor file = open_beneath(path_, location, where);
  struct stat stat = {};
  SLUICE_CHECK_KIND(kIo, fstat(file.get(), &stat) == 0, "{}: external data in '{}': {}", where, location,
                    std::strerror(errno));
  SLUICE_CHECK(S_ISREG(stat.st_mode), "{}: external data in '{}', which is no file", where, location);
  SLUICE_CHECK(offset >= 0 && offset <= stat.st_size && length <= stat.st_size - offset,
               "{}: external data from byte {}, {} of them; '{}' has {}", where, offset, length, location,
               static_cast<int64_t>(stat.st_size));
  std::string bytes(static_cast<size_t>(length < 0 ? stat.st_size - offset : length), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = pread(file.get(), bytes.data() + done, bytes.size() - done, offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    SLUICE_CHECK_KIND(kIo, n > 0, "{}: external data in '{}': {}", where, location,
                      n == 0 ? "it has become shorter" : std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  return bytes;
}

format::ModelProto parse_model(std::string_view bytes, const std::string& name) {
  format::ModelProto model;
  SLUICE_CHECK(bytes.size() <= static_cast<size_t>(std::numeric_limits<int>::max()),
               "onnx: {}: {} bytes; a model may have 2 GB, and external data beside it", name, bytes.size());
  SLUICE_CHECK(model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) && model.has_graph(),
               "onnx: {}: no model; must be a file of ONNX", name);
  return model;
}

format::ModelProto read_model(const std::string& path) {
  std::error_code none;  // the stream says what is missing
  SLUICE_CHECK_KIND(kIo, !std::filesystem::is_other(path, none), "onnx: {}: a device or a pipe; must be a file", path);
  std::ifstream in(path, std::ios::binary);
  SLUICE_CHECK_KIND(kIo, in, "onnx: {}: {}", path, std::strerror(errno));
  std::ostringstream bytes;
  bytes << in.rdbuf();
  SLUICE_CHECK_KIND(kIo, in && bytes, "onnx: {}: cannot be read; must be a file", path);
  return parse_model(bytes.view(), path);
}

std::optional<DType> dtype_of(int32_t data_type) {
  for (const auto& [number, dtype] : kDTypes)
    if (number == data_type) return dtype;
  return std::nullopt;
}

int32_t data_type_of(DType dtype) {
  for (const auto& [number, d] : kDTypes)
    if (d == dtype) return number;
  fail(ErrorKind::kUnsupported, "onnx: dtype {}; ONNX has none such", dtype_name(dtype));
}

std::string data_type_name(int32_t data_type) {
  if (const std::optional<DType> dtype = dtype_of(data_type)) return dtype_name(*dtype);
  static const std::map<int32_t, const char*> others = {
      {0, "undefined"},     {4, "uint16"},          {8, "string"},      {12, "uint32"},         {13, "uint64"},
      {17, "float8e4m3fn"}, {18, "float8e4m3fnuz"}, {19, "float8e5m2"}, {20, "float8e5m2fnuz"}, {21, "uint4"},
      {22, "int4"},         {23, "float4e2m1"},     {24, "float8e8m0"}, {25, "uint2"},          {26, "int2"}};
  const auto found = others.find(data_type);
  return found != others.end() ? found->second : fmt::format("number {}", data_type);
}

TensorType checked_type(const format::TensorProto& tensor, const std::string& where) {
  const DType dtype = checked_dtype(tensor.data_type(), where);
  return {dtype, checked_shape(tensor.dims(), dtype, where)};
}

Tensor read_tensor(const format::TensorProto& tensor, const Folder& folder, const std::string& where) {
  const TensorType type = checked_type(tensor, where);
  const uint64_t bytes = checked_bytes(type.shape, dtype_size(type.dtype));
  if (tensor.data_location() == format::TensorProto::EXTERNAL)
    return Tensor::from_host(type, external_data(tensor, folder, bytes, where).data());
  const std::string typed = tensor.has_raw_data() ? std::string() : typed_data(tensor, type.dtype);
  const std::string& data = tensor.has_raw_data() ? tensor.raw_data() : typed;
  SLUICE_CHECK(data.size() == bytes, "{}: {} bytes of data; {} has {}", where, data.size(), type.str(), bytes);
  if (type.dtype != DType::kBool) return Tensor::from_host(type, data.data());
  std::string bools = data;  // a byte of a bool is 0 or 1
  for (char& b : bools) b = b != 0;
  return Tensor::from_host(type, bools.data());
}

Tensor read_sparse(const format::SparseTensorProto& sparse, const Folder& folder, const std::string& where) {
  const DType dtype = checked_dtype(sparse.values().data_type(), where);
  const Shape shape = checked_shape(sparse.dims(), dtype, where);
  const uint64_t bytes = checked_bytes(shape, dtype_size(dtype));
  SLUICE_CHECK_KIND(kUnsupported, bytes <= kMostSparse, "{}: a sparse tensor of {} bytes; at most {} are supported",
                    where, bytes, kMostSparse);
  const Tensor values = read_tensor(sparse.values(), folder, where);
  const Tensor indices = read_tensor(sparse.indices(), folder, where).to(DType::kInt64);
  const int64_t n = values.size();
  const bool flat = indices.rank() == 1;
  SLUICE_CHECK(
      values.rank() == 1 && (flat ? indices.shape() == Shape({n}) : indices.shape() == Shape({n, shape.rank()})),
      "{}: indices {} of {} values; must be one of each value, into all or into each dim", where, indices.shape().str(),
      n);
  std::vector<int64_t> at(static_cast<size_t>(indices.size()));
  indices.copy_to_host(at.data());
  const Tensor made = Tensor::zeros({dtype, shape});
  const size_t size = dtype_size(dtype);
  std::string from(static_cast<size_t>(n) * size, '\0');
  values.copy_to_host(from.data());
  char* to = static_cast<char*>(made.write());
  const Strides strides = contiguous_strides(shape);
  for (int64_t i = 0; i < n; ++i) {
    int64_t to_index = 0;
    for (int d = 0; d < (flat ? 1 : shape.rank()); ++d) {
      const int64_t index = at[static_cast<size_t>(flat ? i : i * shape.rank() + d)];
      SLUICE_CHECK(index >= 0 && index < (flat ? numel(shape) : shape[d]), "{}: index {}; must be one of {}", where,
                   index, shape.str());
      to_index += flat ? index : index * strides[d];
    }
    std::memcpy(to + static_cast<size_t>(to_index) * size, from.data() + static_cast<size_t>(i) * size, size);
  }
  return made;
}

}  // namespace sluice::onnx
