#include "kernels/accumulate.h"
#include "kernels/cuda/families.h"
#include "kernels/sum_parts.h"

namespace sluice::cuda {
namespace {

class Copy final : public PreparedKernel {
 public:
  explicit Copy(uint64_t bytes) : bytes_(bytes) { repeatable_ = true; }
  void run(const KernelArgs& args) const override {
    stream_of(args, "copy").copy(args.outputs[0], args.inputs[0], bytes_, args.context);
  }

 private:
  const uint64_t bytes_;
};

}  // namespace

CudaStream& stream_of(const KernelArgs& args, const std::string& op) {
  auto* stream = dynamic_cast<CudaStream*>(args.stream);
  SLUICE_CHECK_KIND(kUnsupported, stream != nullptr, "{}: a kernel of cuda on {}; give it a stream of its device", op,
                    args.stream == nullptr ? "the caller's thread" : "a stream of " + args.stream->device().str());
  return *stream;
}

CudaStream& compute_stream_of(const KernelArgs& args, const std::string& op) {
  CudaStream& stream = stream_of(args, op);
  const bool copies = stream.kind() == plan::StreamKind::kCopyIn || stream.kind() == plan::StreamKind::kCopyOut;
  SLUICE_CHECK_KIND(kUnsupported, !copies,
                    "{}: a kernel on stream {}, where memory of the host takes part; lay it out on the host", op,
                    plan::stream_kind_name(stream.kind()));
  return stream;
}

bool copies_bytes(const plan::KernelQuery& query) {
  const TensorSpec &from = query.inputs[0], &to = query.outputs[0];
  return from == to && from.extent_bytes() == checked_bytes(from.shape, dtype_size(from.dtype));
}

static std::unique_ptr<PreparedKernel> copy_of_bytes(const plan::KernelQuery& query) {
  return copies_bytes(query) ? std::make_unique<Copy>(query.outputs[0].extent_bytes()) : nullptr;
}

KernelDef copy_kernel() {
  KernelDef def;
  def.op = "copy";
  set_generated(def, [](const plan::KernelQuery& query) { return Generated{{copy_source(query)}}; },
                {.prepare = copy_of_bytes});
  return def;
}

std::string architecture(const DeviceId& device) {
  const Driver& the_driver = driver();
  CUdevice handle = 0;
  int major = 0, minor = 0;
  CUresult result = the_driver.cuDeviceGet(&handle, device.index);
  if (result == CUDA_SUCCESS) {
    result = the_driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle);
  }
  if (result == CUDA_SUCCESS) {
    result = the_driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle);
  }
  SLUICE_CHECK_KIND(kUnsupported, result == CUDA_SUCCESS, "{}: its compute capability is not known: {}", device.str(),
                    the_driver.text(result));
  return fmt::format("sm_{}{}", major, minor);
}

void add_cuda_kernels(KernelTable& table) {
  add_matmul_kernels(table);  // first, for it may throw
  table.add(DeviceKind::kCuda, copy_kernel());
  add_elementwise_kernels(table);
  add_fused_kernel(table);
  add_reduction_kernels(table);
  add_fused_rows_kernel(table);
  add_movement_kernels(table);
  add_creation_kernels(table);
  add_indexing_kernels(table);
  add_random_kernels(table);
  add_softmax_kernels(table);
  add_cross_entropy_kernels(table);
  add_convolution_kernels(table);
  add_pooling_kernels(table);
  add_batch_norm_kernels(table);
  add_normalization_kernels(table);
  add_optimizer_update_kernels(table);
  add_attention_kernels(table);
  add_lines_kernels(table);
  add_accumulate_kernel(table, DeviceKind::kCuda);
  add_sum_parts_kernel(table, DeviceKind::kCuda);
}

}  // namespace sluice::cuda
