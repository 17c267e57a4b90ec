#include "kernels/cuda/generated.h"

#include <algorithm>
#include <array>

namespace sluice::cuda {
namespace {

constexpr int64_t kThreads = 256, kMostBlocks = 4096;
constexpr size_t kMostInputs = 3;

}  // namespace

GeneratedKernel::GeneratedKernel(const plan::KernelQuery& query, Source source)
    : op_(query.op), inputs_(query.inputs.size()), elements_(source.elements), describe_(source.describe) {
  if (elements_ > 0) program_ = program_cache().get(source.entry, source.text, architecture(query.device));
}

CUfunction GeneratedKernel::function(CudaStream& stream) const {
  CUfunction function = function_.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = stream.context().function(program_, program_->image.data(), program_->entry.c_str());
    function_.store(function, std::memory_order_release);
  }
  return function;
}

void GeneratedKernel::run(const KernelArgs& args) const {
  CudaStream& stream = stream_of(args, op_);
  const bool copies = stream.kind() == plan::StreamKind::kCopyIn || stream.kind() == plan::StreamKind::kCopyOut;
  SLUICE_CHECK_KIND(kUnsupported, !copies,
                    "{}: a kernel on stream {}, where memory of the host takes part; lay it out on "
                    "the host",
                    op_, plan::stream_kind_name(stream.kind()));
  if (elements_ == 0) return;
  FailurePort port = describe_ != nullptr ? stream.failure_port(describe_, args.context) : stream.failure_port();
  std::array<void*, kMostInputs + 3> params{&port.word, &port.ticket};
  for (size_t i = 0; i < inputs_; ++i) params[2 + i] = const_cast<void**>(args.inputs + i);
  params[2 + inputs_] = const_cast<void**>(args.outputs);
  Launch launch;
  launch.function = function(stream);
  launch.blocks = static_cast<unsigned>(std::clamp<int64_t>((elements_ + kThreads - 1) / kThreads, 1, kMostBlocks));
  launch.threads = kThreads;
  launch.params = params.data();
  launch.context = args.context;
  stream.launch(launch);
}

}  // namespace sluice::cuda
