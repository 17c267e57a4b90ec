#include "actors/numerics.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#include "actors/stream_executor.h"
#include "base/dtype.h"
#include "streams/stream.h"

namespace sluice::actors {
namespace {

double element(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kFloat32: {
      float v;
      std::memcpy(&v, at, sizeof v);
      return v;
    }
    case DType::kFloat64: {
      double v;
      std::memcpy(&v, at, sizeof v);
      return v;
    }
    case DType::kFloat16: {
      Float16 v;
      std::memcpy(&v, at, sizeof v);
      return to_float(v);
    }
    case DType::kBFloat16: {
      BFloat16 v;
      std::memcpy(&v, at, sizeof v);
      return to_float(v);
    }
    default: return 0;
  }
}

// Calls visit(offset in elements) for every element in row-major order.
template <class Visit>
void for_each(const TensorSpec& spec, Visit&& visit) {
  const int64_t n = numel(spec.shape);
  Shape index = Shape::filled(spec.shape.rank(), 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < n; ++i) {
    visit(i, offset);
    for (int d = spec.shape.rank() - 1; d >= 0; --d) {
      offset += spec.strides[d];
      if (++index[d] < spec.shape[d]) break;
      offset -= index[d] * spec.strides[d];
      index[d] = 0;
    }
  }
}

std::string file_name(const plan::Kernel& kernel, int output, uint64_t step) {
  std::string name = kernel.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  }
  return fmt::format("{}.{}.step{}.bin", name, output, step);
}

}  // namespace

void check_numerics(const plan::Kernel& kernel, void* const* outputs, uint64_t step, StreamExecutor& home,
                    const std::string& directory) {
  for (size_t o = 0; o < kernel.outputs.size(); ++o) {
    const TensorSpec& spec = kernel.outputs[o].spec;
    if (!is_floating(spec.dtype) || outputs[o] == nullptr) continue;
    const auto* data = static_cast<const std::byte*>(outputs[o]);
    std::vector<std::byte> copy;
    if (home.stream().asynchronous()) home.stream().synchronize().throw_if_error();
    if (home.stream().asynchronous() && home.stream().kind() != plan::StreamKind::kCopyOut) {
      copy.resize(spec.extent_bytes());
      home.device().copy_to_host(copy.data(), data, copy.size());
      data = copy.data();
    }
    const size_t size = dtype_size(spec.dtype);
    int64_t bad = -1;
    double value = 0;
    for_each(spec, [&](int64_t i, int64_t offset) {
      if (bad >= 0) return;
      const double v = element(spec.dtype, data + offset * static_cast<int64_t>(size));
      if (std::isfinite(v)) return;
      bad = i;
      value = v;
    });
    if (bad < 0) continue;
    const std::string path = directory + "/" + file_name(kernel, static_cast<int>(o), step);
    std::ofstream file(path, std::ios::binary);
    for_each(spec, [&](int64_t, int64_t offset) {
      file.write(reinterpret_cast<const char*>(data + offset * static_cast<int64_t>(size)),
                 static_cast<std::streamsize>(size));
    });
    file.close();
    const std::string type = std::string(dtype_name(spec.dtype)) + spec.shape.str();
    fail(ErrorKind::kRuntime, "{}: output {} is not finite: element {} of {} is {}; {}", kernel.op, o, bad, type, value,
         file ? fmt::format("the whole output is in {}", path) : fmt::format("{} could not be written", path));
  }
}

}  // namespace sluice::actors
