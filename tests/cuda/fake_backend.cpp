// A CUDA backend for tests, in place of libsluice_cuda.so: the same devices and streams on the fake driver, and every
// kernel of the cpu as a kernel of cuda. An exception of such a kernel is a failure that a running kernel finds. The
// nodes of the machine are those of the fake driver's.
#include <cstring>
#include <mutex>

#include "cuda/fake_driver/fake_driver.h"
#include "kernels/cuda/cuda_kernels.h"
#include "streams/backend.h"
#include "streams/cuda/cuda_device.h"
#include "streams/cuda/near_node.h"

namespace sluice::cuda {
namespace {

// Failures as values: a kernel leaves the number of its own.
class Thrown {
 public:
  static int64_t keep(Status status) {
    std::lock_guard lock(mutex());
    all().push_back(std::move(status));
    return static_cast<int64_t>(all().size()) - 1;
  }
  static Status describe(const int64_t* values) {
    std::lock_guard lock(mutex());
    return all().at(static_cast<size_t>(values[0]));
  }

 private:
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::vector<Status>& all() {
    static std::vector<Status> list;
    return list;
  }
};

class FakeKernel final : public PreparedKernel {
 public:
  FakeKernel(std::unique_ptr<PreparedKernel> kernel, const plan::KernelQuery& query)
      : kernel_(std::move(kernel)), op_(query.op) {
    workspace_bytes_ = kernel_->workspace_bytes();
    repeatable_ = true;
    for (const TensorSpec& spec : query.inputs) input_bytes_.push_back(spec.extent_bytes());
    for (const TensorSpec& spec : query.outputs) output_bytes_.push_back(spec.extent_bytes());
    function_.name = "kernel '" + op_ + "'";
    function_.param_bytes = {sizeof(FailurePort), sizeof(void*)};
    function_.param_bytes.resize(2 + input_bytes_.size() + output_bytes_.size(), sizeof(void*));
    function_.run = [this](void** params) { execute(params); };
    function_.accesses = [this](void** params, std::vector<fake_cuda::Access>& all) { accesses(params, all); };
  }

  void run(const KernelArgs& args) const override {
    CudaStream& stream = stream_of(args, op_);
    FailurePort port = stream.failure_port(Thrown::describe, args.context);
    thread_local std::vector<void*> params;
    params.clear();
    params.push_back(&port);
    params.push_back(const_cast<void**>(&args.workspace));
    for (size_t i = 0; i < input_bytes_.size(); ++i) params.push_back(const_cast<void**>(args.inputs + i));
    for (size_t i = 0; i < output_bytes_.size(); ++i) params.push_back(const_cast<void**>(args.outputs + i));
    Launch launch;
    launch.function = fake_cuda::handle_of(function_);
    launch.params = params.data();
    launch.context = args.context;
    stream.launch(launch);
  }

 private:
  static void* pointer(void* param) { return *static_cast<void**>(param); }

  void execute(void** params) const {
    const auto& port = *static_cast<const FailurePort*>(params[0]);
    auto* word = static_cast<LateFailure*>(fake_cuda::shadow(port.word));
    if (word->ticket != 0) return;
    thread_local std::vector<void*> pointers;
    pointers.clear();
    for (size_t i = 1; i < function_.param_bytes.size(); ++i) {
      pointers.push_back(fake_cuda::shadow(pointer(params[i])));
    }
    try {
      kernel_->run({pointers.data() + 1, pointers.data() + 1 + input_bytes_.size(), pointers[0]});
    } catch (...) {
      word->ticket = port.ticket;
      word->values[0] = Thrown::keep(Status::from_current_exception());
    }
  }

  void accesses(void** params, std::vector<fake_cuda::Access>& all) const {
    all.push_back({static_cast<const FailurePort*>(params[0])->word, sizeof(LateFailure), true});
    const auto add = [&](void* param, uint64_t bytes, bool writes) {
      if (pointer(param) != nullptr) all.push_back({pointer(param), bytes, writes});
    };
    add(params[1], workspace_bytes_, true);
    for (size_t i = 0; i < input_bytes_.size(); ++i) add(params[2 + i], input_bytes_[i], false);
    for (size_t i = 0; i < output_bytes_.size(); ++i) add(params[2 + input_bytes_.size() + i], output_bytes_[i], true);
  }

  const std::unique_ptr<PreparedKernel> kernel_;
  const std::string op_;
  std::vector<uint64_t> input_bytes_, output_bytes_;
  mutable fake_cuda::Function function_;
};

// A copy of bytes is the backend's own.
KernelDef on_fake(const KernelDef& cpu) {
  KernelDef def = cpu;
  def.branches = false;
  def.prepare = [cpu](const plan::KernelQuery& query,
                      const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
    if (query.op == "copy" && copies_bytes(query)) return copy_kernel().prepare(query, context);
    return std::make_unique<FakeKernel>(cpu.prepare(query, context), query);
  };
  return def;
}

void add_kernels(KernelTable& table) {
  for (const std::string& op : table.ops(DeviceKind::kCpu)) {
    table.add(DeviceKind::kCuda, on_fake(table.get(op, DeviceKind::kCpu)));
  }
}

}  // namespace
}  // namespace sluice::cuda

extern "C" __attribute__((visibility("default"))) const sluice::Backend* sluice_backend() {
  static const sluice::Backend backend{
      SLUICE_BACKEND_ABI, "cuda",
      [](const sluice::DeviceId& id, const sluice::DeviceOptions& options) -> std::unique_ptr<sluice::Device> {
        static constexpr sluice::cuda::NodeCalls kNodes{fake_cuda::get_policy, fake_cuda::set_policy};
        sluice::cuda::use_node_calls(&kNodes);
        return std::make_unique<sluice::cuda::CudaDevice>(id, options);
      },
      sluice::cuda::add_kernels, sluice::cuda::nccl_collectives()};
  return &backend;
}
