#pragma once
// A device with four small kernels, through the same table, prepare() and run() as every kernel of a plan.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "kernels/sim/sim_kernels.h"
#include "memory/storage.h"
#include "streams/backend.h"
#include "streams/devices.h"
#include "support/accelerator.h"
#include "support/fake_cuda.h"

namespace sluice::test {

// Float32 kernels of one line each.
template <class Run>
KernelDef simple_kernel(const char* op, Run run) {
  class Simple final : public PreparedKernel {
   public:
    Simple(int64_t n, double factor, double offset, Run run) : n_(n), factor_(factor), offset_(offset), run_(run) {}
    void run(const KernelArgs& args) const override {
      run_(args, n_, static_cast<float>(factor_), static_cast<float>(offset_));
    }

   private:
    int64_t n_;
    double factor_, offset_;
    Run run_;
  };
  return {op, [run](const plan::KernelQuery& query, const PrepareContext&) -> std::unique_ptr<PreparedKernel> {
            return std::make_unique<Simple>(numel(query.outputs[0].shape), get_attr<double>(query.attrs, "factor"),
                                            get_attr<double>(query.attrs, "offset"), run);
          }};
}

inline const float* in(const KernelArgs& args, int i) { return static_cast<const float*>(args.inputs[i]); }
inline float* out(const KernelArgs& args) { return static_cast<float*>(args.outputs[0]); }

inline void add_test_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, simple_kernel("fill", [](const KernelArgs& args, int64_t n, float, float offset) {
              for (int64_t i = 0; i < n; ++i) out(args)[i] = offset;
            }));
  table.add(DeviceKind::kCpu, simple_kernel("scale", [](const KernelArgs& args, int64_t n, float factor, float offset) {
              for (int64_t i = 0; i < n; ++i) out(args)[i] = in(args, 0)[i] * factor + offset;
            }));
  table.add(DeviceKind::kCpu, simple_kernel("add", [](const KernelArgs& args, int64_t n, float, float) {
              for (int64_t i = 0; i < n; ++i) out(args)[i] = in(args, 0)[i] + in(args, 1)[i];
            }));
  table.add(DeviceKind::kCpu, simple_kernel("broken", [](const KernelArgs&, int64_t, float, float) {
              fail(ErrorKind::kRuntime, "broken: this kernel always fails");
            }));
}

// A run of floats in the device's memory.
struct Floats {
  std::shared_ptr<Storage> storage;
  int64_t n = 0;
  void* data() const { return storage->data(); }
};

class Conformance : public testing::TestWithParam<std::string> {
 protected:
  Conformance() : device_(make_device(parse_device(GetParam()), {.cores = 1})) {
    add_test_kernels(table_);
    add_sim_kernels(table_);
    if (const Backend* backend = backend_of(id().kind); backend != nullptr) backend->add_kernels(table_);
    space_ = {plan::SpaceKind::kDevice, id()};
    allocator_ = make_device_allocator(*device_, space_);
  }

  Device& device() { return *device_; }
  DeviceId id() const { return parse_device(GetParam()); }
  std::unique_ptr<Stream> compute_stream() { return device_->create_stream(plan::StreamKind::kCompute, 0); }
  Floats buffer(int64_t n) {
    return {std::make_shared<Storage>(allocator_, static_cast<uint64_t>(n) * sizeof(float), space_), n};
  }
  std::vector<float> read(const Floats& x) {
    std::vector<float> values(static_cast<size_t>(x.n));
    device_->copy_to_host(values.data(), x.data(), values.size() * sizeof(float));
    return values;
  }

  void fill(Stream& stream, const Floats& x, float value) { run(stream, "fill", {}, x, 0, value); }
  void scale(Stream& stream, const Floats& x, const Floats& y, float factor, float offset) {
    run(stream, "scale", {&x}, y, factor, offset);
  }
  void copy(Stream& stream, const Floats& x, const Floats& y) { scale(stream, x, y, 1, 0); }
  void add(Stream& stream, const Floats& a, const Floats& b, const Floats& sum) {
    run(stream, "add", {&a, &b}, sum, 0, 0);
  }
  // A kernel that fails, at once or late, as an executor runs it: an error thrown by run() fails the firing.
  void fail_kernel(Stream& stream, const Floats& x) {
    static const std::string kContext = "op 'bad', train.py:41";
    try {
      run(stream, "broken", {}, x, 0, 0, &kContext);
    } catch (const Error&) {
      stream.fail(Status::from_current_exception().with_context(kContext));
    }
  }

 private:
  void run(Stream& stream, const char* op, std::initializer_list<const Floats*> inputs, const Floats& y, float factor,
           float offset, const std::string* context = nullptr) {
    const void* in[2] = {};
    int count = 0;
    for (const Floats* input : inputs) in[count++] = input->data();
    void* out[1] = {y.data()};
    prepared(op, count, y.n, factor, offset).run({in, out, nullptr, &stream, context});
  }

  struct Key {
    const char* op;
    int64_t n;
    float factor, offset;
    auto operator<=>(const Key&) const = default;
  };
  const PreparedKernel& prepared(const char* op, int inputs, int64_t n, float factor, float offset) {
    auto& kernel = prepared_[{op, n, factor, offset}];
    if (kernel == nullptr) {
      plan::KernelQuery query;
      query.op = op;
      query.attrs = {{"factor", double{factor}}, {"offset", double{offset}}};
      query.outputs = {TensorSpec::contiguous({DType::kFloat32, Shape{n}})};
      query.inputs.assign(static_cast<size_t>(inputs), query.outputs[0]);
      query.device = id();
      kernel = table_.get(op, id().kind).prepare(query, {});
    }
    return *kernel;
  }

  std::unique_ptr<Device> device_;
  KernelTable table_;
  plan::Space space_;
  std::shared_ptr<Allocator> allocator_;
  std::map<Key, std::unique_ptr<PreparedKernel>> prepared_;
};

}  // namespace sluice::test
