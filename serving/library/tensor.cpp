// Tensors of the public interface, and those of sessions.
#include <cstdint>
#include <cstring>
#include <limits>

#include "serving/core/datatype.h"
#include "serving/library/convert.h"

namespace sluice::api::serving {

namespace {

namespace core = sluice::serving;

std::shared_ptr<void> aligned(size_t bytes) {
  static core::BufferPool buffers(0);  // which keeps none
  return buffers.take(bytes);
}

[[noreturn]] void refuse(const Tensor& tensor, const char* what) {
  throw Error(Code::kInvalidArgument, "tensor '" + tensor.name + "': " + tensor.datatype + ": " + what);
}

}  // namespace

Tensor Tensor::from(std::string name, const api::Tensor& tensor) {
  return core::translated([&] {
    Tensor made;
    made.name = std::move(name);
    made.datatype = std::string(core::datatype_name(core::datatype_of(tensor.dtype())));
    made.shape = tensor.shape();
    made.bytes = tensor.bytes();
    if (tensor.device() != "cpu:0") refuse(made, "it lies on a device; must lie in host memory");
    made.data = aligned(made.bytes);
    if (made.bytes > 0) std::memcpy(made.data.get(), tensor.raw(), made.bytes);
    return made;
  });
}

Tensor Tensor::from(std::string name, const std::vector<std::string>& strings, std::vector<int64_t> shape) {
  Tensor made{std::move(name), "BYTES", std::move(shape), nullptr, 0};
  for (const std::string& text : strings) {
    if (text.size() > std::numeric_limits<uint32_t>::max()) refuse(made, "an element has more than 4 GiB");
    made.bytes += sizeof(uint32_t) + text.size();
  }
  made.data = aligned(made.bytes);
  char* out = static_cast<char*>(made.data.get());
  for (const std::string& text : strings) {
    const auto size = static_cast<uint32_t>(text.size());
    std::memcpy(out, &size, sizeof size);
    if (!text.empty()) std::memcpy(out + sizeof size, text.data(), text.size());
    out += sizeof size + text.size();
  }
  return made;
}

std::vector<std::string> Tensor::strings() const {
  if (datatype != "BYTES") refuse(*this, "its elements are no strings");
  std::vector<std::string> all;
  const char* at = static_cast<const char*>(data.get());
  for (size_t left = bytes; left > 0;) {
    uint32_t size = 0;
    if (left >= sizeof size) std::memcpy(&size, at, sizeof size);
    if (left < sizeof size || left - sizeof size < size) refuse(*this, "its bytes end within an element");
    all.emplace_back(at + sizeof size, size);
    at += sizeof size + size;
    left -= sizeof size + size;
  }
  return all;
}

api::Tensor Tensor::tensor() const {
  return core::translated([&] {
    const auto dtype = core::dtype_of(core::datatype_of(datatype));
    if (!dtype) refuse(*this, "no tensor of a session holds it");
    api::Tensor made(*dtype, shape);
    if (made.bytes() != bytes) refuse(*this, "its bytes are not those of its shape");
    if (bytes > 0) std::memcpy(made.raw(), data.get(), bytes);
    return made;
  });
}

}  // namespace sluice::api::serving
