#include "kernels/guarded_kernel.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/cpu/strides/strided_copy.h"
#include "kernels/cpu/support/support.h"
#include "plan/query.h"

namespace sluice::cpu {
namespace {

// Errors of a few elements, of a row or of a whole operand reach this far.
constexpr uint64_t kLeastAround = 4 << 10, kMostAround = 1 << 20;
constexpr unsigned char kCanary = 0xa7;

// Bytes with canaries before and behind, at the place within a line of a cache that the original has.
class Watched {
 public:
  Watched(std::string name, const std::byte* original, uint64_t bytes)
      : name_(std::move(name)), original_(original), bytes_(bytes) {
    const uint64_t around = align_up(std::clamp(bytes, kLeastAround, kMostAround), plan::kAlignment);
    const uint64_t shift = reinterpret_cast<uintptr_t>(original) % plan::kAlignment;
    size_ = 2 * around + shift + bytes;
    block_.reset(static_cast<std::byte*>(::operator new (size_, std::align_val_t{plan::kAlignment})));
    data_ = block_.get() + around + shift;
    std::memset(block_.get(), kCanary, static_cast<size_t>(data_ - block_.get()));
    std::memset(data_ + bytes_, kCanary, static_cast<size_t>(end() - data_) - bytes_);
  }

  std::byte* data() const { return data_; }
  bool covers(const void* at) const { return original_ <= at && at < original_ + bytes_; }
  std::byte* copy_of(const void* at) const { return data_ + (static_cast<const std::byte*>(at) - original_); }

  // "" or what was written where it must not.
  std::string fault() const {
    const auto changed = [](std::byte b) { return b != std::byte{kCanary}; };
    const std::byte* const before = std::find_if(block_.get(), data_, changed);
    const std::byte* const first = std::find_if<const std::byte*>(data_ + bytes_, end(), changed);
    if (before == data_ && first == end()) return "";
    if (first == end()) return fmt::format("wrote {} bytes before its {}, of {} bytes", data_ - before, name_, bytes_);
    const std::byte* last = end();
    while (!changed(last[-1])) --last;
    return fmt::format("wrote beyond its {}, of {} bytes, up to byte {}", name_, bytes_, last - data_);
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{plan::kAlignment}); }
  };
  const std::byte* end() const { return block_.get() + size_; }

  std::string name_;
  const std::byte* original_;
  uint64_t bytes_, size_ = 0;
  std::unique_ptr<std::byte, Free> block_;
  std::byte* data_ = nullptr;
};

class Guarded final : public PreparedKernel {
 public:
  Guarded(std::shared_ptr<const PreparedKernel> kernel, const plan::KernelQuery& query)
      : kernel_(std::move(kernel)), op_(query.op), outputs_(query.outputs) {
    workspace_bytes_ = kernel_->workspace_bytes();
    held_bytes_ = kernel_->held_bytes();
    needs_cores_ = kernel_->needs_cores();
    packings_ = kernel_->packings();
    for (const TensorSpec& spec : query.inputs) input_bytes_.push_back(spec.extent_bytes());
    for (Packing& packing : packings_) {
      const auto input = static_cast<size_t>(packing.input);
      const TensorType packed{DType::kUInt8, {static_cast<int64_t>(packing.bytes)}};
      input_bytes_[input] = packing.bytes;
      packing.kernel = guarded(packing.kernel, {.op = op_ + ", packing a weight",
                                                .attrs = {},
                                                .inputs = {query.inputs[input]},
                                                .outputs = {TensorSpec::contiguous(packed)},
                                                .device = query.device});
    }
    for (const TensorSpec& spec : outputs_)
      copies_.emplace_back(spec.shape, spec.strides, spec.strides, dtype_size(spec.dtype));
    implementation_ = plan::beside<std::string>(query.attrs, plan::kImplementation, "");
    if (const auto* named = dynamic_cast<const OfImplementation*>(kernel_.get()))
      implementation_ = named->implementation();
  }
  const char* library() const override { return kernel_->library(); }

  void run(const KernelArgs& args) const override {
    std::vector<Watched> watched;
    watched.reserve(outputs_.size() + 1);
    for (const Range& range : written(args)) {
      watched.emplace_back(fmt::format("output {}", range.output), range.begin,
                           static_cast<uint64_t>(range.end - range.begin));
      std::memcpy(watched.back().data(), range.begin, static_cast<size_t>(range.end - range.begin));
    }
    const auto copy_of = [&](const void* original) {
      for (const Watched& w : watched)
        if (w.covers(original)) return static_cast<void*>(w.copy_of(original));
      return const_cast<void*>(original);
    };
    std::vector<const void*> inputs;
    for (size_t i = 0; i < input_bytes_.size(); ++i) inputs.push_back(copy_of(args.inputs[i]));
    std::vector<void*> outputs;
    for (size_t i = 0; i < outputs_.size(); ++i) outputs.push_back(copy_of(args.outputs[i]));
    KernelArgs own = args;
    own.inputs = inputs.data();
    own.outputs = outputs.data();
    if (args.workspace != nullptr && workspace_bytes_ > 0) {
      watched.emplace_back("workspace", static_cast<const std::byte*>(args.workspace), workspace_bytes_);
      own.workspace = watched.back().data();
    }
    kernel_->run(own);
    for (const Watched& w : watched) check(w);
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (outputs[i] != args.outputs[i]) copies_[i].run(outputs[i], args.outputs[i], 1);
  }

 private:
  struct Range {
    const std::byte* begin;
    const std::byte* end;
    size_t output;
  };

  // The ranges in which outputs lie, together with inputs that lie there, too; in order, none over another.
  std::vector<Range> written(const KernelArgs& args) const {
    std::vector<Range> ranges;
    const auto add = [&](const void* at, uint64_t bytes, size_t output) {
      const auto* const begin = static_cast<const std::byte*>(at);
      if (at != nullptr && bytes > 0) ranges.push_back({begin, begin + bytes, output});
    };
    for (size_t i = 0; i < outputs_.size(); ++i) add(args.outputs[i], outputs_[i].extent_bytes(), i);
    const size_t of_outputs = ranges.size();
    for (size_t i = 0; i < input_bytes_.size(); ++i) {
      const auto* const begin = static_cast<const std::byte*>(args.inputs[i]);
      const auto meets = [&](const Range& r) { return begin < r.end && r.begin < begin + input_bytes_[i]; };
      const auto it = std::find_if(ranges.begin(), ranges.begin() + static_cast<ptrdiff_t>(of_outputs), meets);
      if (begin != nullptr && it != ranges.begin() + static_cast<ptrdiff_t>(of_outputs))
        add(begin, input_bytes_[i], it->output);
    }
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<Range> joined;
    for (const Range& r : ranges) {
      if (joined.empty() || r.begin >= joined.back().end)
        joined.push_back(r);
      else
        joined.back().end = std::max(joined.back().end, r.end);
    }
    return joined;
  }

  void check(const Watched& watched) const {
    const std::string fault = watched.fault();
    if (fault.empty()) return;
    const std::string by = implementation_.empty() ? "" : fmt::format(" (implementation '{}')", implementation_);
    fail(ErrorKind::kRuntime, "{}: memory guard: the kernel{} {}; it must stay within: mend it, or report it", op_, by,
         fault);
  }

  std::shared_ptr<const PreparedKernel> kernel_;
  std::string op_, implementation_;
  std::vector<TensorSpec> outputs_;
  std::vector<uint64_t> input_bytes_;
  std::vector<StridedCopy> copies_;
};

}  // namespace

bool guards_all_memory() {
  static const bool guards = [] {
    const char* const value = std::getenv("SLUICE_GUARD");
    return value != nullptr && *value != '\0' && std::string_view(value) != "0";
  }();
  return guards;
}

std::shared_ptr<const PreparedKernel> guarded(std::shared_ptr<const PreparedKernel> kernel,
                                              const plan::KernelQuery& query) {
  if (query.device.kind != DeviceKind::kCpu || dynamic_cast<const Guarded*>(kernel.get()) != nullptr) return kernel;
  return std::make_shared<Guarded>(std::move(kernel), query);
}

}  // namespace sluice::cpu
