#pragma once
// Runs one cpu kernel on operands given as doubles in logical order, through any dtype and strides.
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/cpu/strides/tiles.h"
#include "kernels/kernel.h"

namespace sluice {

// The families of this folder's tests.
inline const KernelTable& test_kernels() {
  static const KernelTable table = [] {
    KernelTable t;
    cpu::add_elementwise_kernels(t);
    cpu::add_fused_kernel(t);
    cpu::add_fused_rows_kernel(t);
    cpu::add_reduction_kernels(t);
    cpu::add_movement_kernels(t);
    cpu::add_indexing_kernels(t);
    cpu::add_gather_kernels(t);
    cpu::add_creation_kernels(t);
    cpu::add_random_kernels(t);
    cpu::add_host_kernels(t);
    return t;
  }();
  return table;
}

// Memory of one operand. Strides must be non-negative.
class TestTensor {
 public:
  explicit TestTensor(TensorSpec spec, std::vector<double> values = {}) : spec_(std::move(spec)) {
    bytes_.assign(spec_.extent_bytes() + 64, 0x7e);
    if (!values.empty()) write(values);
  }
  const TensorSpec& spec() const { return spec_; }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }

  std::vector<double> read() const {
    std::vector<double> out;
    for_each([&](int64_t offset) {
      const void* at = bytes_.data() + offset * static_cast<int64_t>(dtype_size(spec_.dtype));
      double v = 0;
      cpu::tile_load(spec_.dtype, cpu::TileType::kDouble)(at, 1, &v, 1);
      out.push_back(v);
    });
    return out;
  }
  // Bytes past the last element: a kernel must not touch them.
  bool intact() const {
    for (size_t i = spec_.extent_bytes(); i < bytes_.size(); ++i)
      if (bytes_[i] != 0x7e) return false;
    return true;
  }

 private:
  template <class F>
  void for_each(F f) const {
    const int64_t n = numel(spec_.shape);
    for (int64_t i = 0; i < n; ++i) {
      int64_t rest = i, offset = 0;
      for (int axis = spec_.shape.rank() - 1; axis >= 0; --axis) {
        offset += rest % spec_.shape[axis] * spec_.strides[axis];
        rest /= spec_.shape[axis];
      }
      f(offset);
    }
  }
  void write(const std::vector<double>& values) {
    size_t i = 0;
    for_each([&](int64_t offset) {
      void* at = bytes_.data() + offset * static_cast<int64_t>(dtype_size(spec_.dtype));
      const double v = values[i++ % values.size()];
      const int64_t whole = static_cast<int64_t>(v);
      if (is_integral(spec_.dtype))
        cpu::tile_store(cpu::TileType::kInt64, spec_.dtype)(&whole, at, 1, 1);
      else
        cpu::tile_store(cpu::TileType::kDouble, spec_.dtype)(&v, at, 1, 1);
    });
  }

  TensorSpec spec_;
  std::vector<unsigned char> bytes_;
};

inline TensorSpec dense(Shape shape, DType dtype = DType::kFloat32) { return TensorSpec::contiguous({dtype, shape}); }

// Row-major strides over axes padded and permuted: not contiguous for rank >= 1.
inline TensorSpec scrambled(Shape shape, DType dtype = DType::kFloat32) {
  TensorSpec spec{dtype, shape, Shape::filled(shape.rank(), 1)};
  int64_t step = 2;
  for (int i = 0; i < shape.rank(); ++i) {
    spec.strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1) + 1;
  }
  return spec;
}

inline std::vector<double> ramp(int64_t n, double start, double step) {
  std::vector<double> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = start + static_cast<double>(i) * step;
  return v;
}

inline std::vector<double> run_kernel(const std::string& op, const std::vector<TestTensor>& inputs, TensorSpec out,
                                      NamedAttrs attrs = {}, int threads = 1) {
  plan::KernelQuery q{
      .op = op, .attrs = std::move(attrs), .inputs = {}, .outputs = {out}, .device = {}, .cores = threads};
  for (const TestTensor& in : inputs) q.inputs.push_back(in.spec());
  const auto kernel = test_kernels().get(op, DeviceKind::kCpu).prepare(q, {.threads = threads});
  TestTensor result(out);
  std::vector<const void*> pointers;
  for (const TestTensor& in : inputs) pointers.push_back(in.data());
  void* outputs[] = {result.data()};
  std::vector<double> workspace(kernel->workspace_bytes() / 8 + 16);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) & ~uintptr_t{63});
  kernel->run({.inputs = pointers.data(), .outputs = outputs, .workspace = aligned});
  if (!result.intact()) throw std::runtime_error(op + ": wrote past its output");
  return result.read();
}

}  // namespace sluice
