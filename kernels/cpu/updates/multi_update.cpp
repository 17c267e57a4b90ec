// Steps of an optimizer for several parameters in one sweep, which threads share as if they were one parameter. A step
// that makes the gradient from what is given, a cast or a product with a number, is computed on pieces of it, in the
// cache; so is a copy of the parameter in another dtype.
#include <algorithm>
#include <optional>

#include "kernels/cpu/families.h"
#include "kernels/cpu/rows/flat_program.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"
#include "kernels/cpu/updates/update_step.h"
#include "kernels/update_calls.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kUpdateGrain = 32768;      // elements worth a thread
constexpr int64_t kUpdatePiece = 8 * kTile;  // elements for which a gradient is made at a time
constexpr int kMostUpdateOperands = 8;       // of a step
constexpr int kMostUpdateOutputs = 256;

class MultiUpdate final : public PreparedKernel {
 public:
  MultiUpdate(const plan::KernelQuery& q, const AttrGraph& body, int threads)
      : calls_(q),
        update_(body.calls.back().op, body.calls.back().attrs, dtypes_of_update(q, body)),
        threads_(threads) {
    operands_ = body.calls.back().operands;
    SLUICE_CHECK_KIND(kUnsupported, operands_.size() <= kMostUpdateOperands,
                      "multi_update: a step of {} operands; must be "
                      "at most {}",
                      operands_.size(), kMostUpdateOperands);
    size_ = static_cast<int64_t>(dtype_size(q.inputs[0].dtype));
    for (size_t c = 0; c < calls_.count; ++c) {
      total_ += numel(q.inputs[calls_.place(0, c)].shape);
      ends_.push_back(total_);
    }
    if (calls_.copy) {
      copy_size_ = static_cast<int64_t>(dtype_size(*calls_.copy));
      const AttrGraph cast{1, {{"cast", {{"dtype", *calls_.copy}}, {0}}}, {1}};
      copy_.emplace("multi_update", cast, std::vector<DType>{q.inputs[0].dtype}, std::vector<bool>{false});
    }
    if (body.calls.size() == 1) return;
    AttrGraph steps{body.inputs, {body.calls.begin(), body.calls.end() - 1}, {operands_[1]}};
    std::vector<DType> dtypes;
    for (size_t i = 0; i < calls_.inputs; ++i) dtypes.push_back(q.inputs[calls_.place(i, 0)].dtype);
    gradient_.emplace("multi_update", steps, dtypes, numbers(q, body));
  }

  void run(const KernelArgs& args) const override {
    parallel_ranges(threads_, total_, kUpdateGrain, [&](int64_t begin, int64_t end) {
      size_t call = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
      for (; begin < end; ++call) {
        const int64_t first = call == 0 ? 0 : ends_[call - 1], last = std::min(end, ends_[call]);
        if (begin < last) run_call(args, call, begin - first, last - first);
        begin = std::max(begin, last);
      }
    });
  }

 private:
  static std::vector<DType> dtypes_of_update(const plan::KernelQuery& q, const AttrGraph& body) {
    std::vector<DType> dtypes;
    const DType parameter = q.inputs.at(0).dtype;
    const UpdateCalls calls(q);
    for (int operand : body.calls.back().operands) {
      const auto i = static_cast<size_t>(operand);
      const bool given = operand < body.inputs;
      dtypes.push_back(!given ? parameter : q.inputs.at(calls.place(i, 0)).dtype);
    }
    return dtypes;
  }

  // Which inputs of the steps that make a gradient are one element, however many the parameter has.
  std::vector<bool> numbers(const plan::KernelQuery& q, const AttrGraph& body) const {
    std::vector<bool> numbers(calls_.inputs, false);
    for (size_t i = 0; i < calls_.inputs; ++i) {
      const bool read = std::any_of(body.calls.begin(), body.calls.end() - 1, [&](const AttrCall& step) {
        return std::find(step.operands.begin(), step.operands.end(), static_cast<int>(i)) != step.operands.end();
      });
      bool number = true, elements = true;
      for (size_t c = 0; c < calls_.count; ++c) {
        const Shape& shape = q.inputs[calls_.place(i, c)].shape;
        number &= shape.rank() == 0;
        elements &= shape == q.inputs[calls_.place(0, c)].shape;
      }
      SLUICE_CHECK_KIND(
          kUnsupported, !read || number || elements,
          "multi_update: operand {} of a call is neither one element nor as large as the parameter; must be", i);
      numbers[i] = read && number;
    }
    return numbers;
  }

  void run_call(const KernelArgs& args, size_t call, int64_t begin, int64_t end) const {
    const void* given[kMostUpdateOperands] = {};
    for (size_t k = 0; k < operands_.size(); ++k)
      if (const auto i = static_cast<size_t>(operands_[k]); i < calls_.inputs)
        given[k] = args.inputs[calls_.place(i, call)];
    void* const* out = args.outputs + call * calls_.replaced;
    const Step step = update_.read(given);
    if (!gradient_ && !copy_) return update_.run()(step, given, out, begin, end);
    if (gradient_) return run_with_gradient(args, call, {step, given, out, begin, end});
    for (int64_t at = begin; at < end; at += kUpdatePiece) {
      const int64_t next = std::min(at + kUpdatePiece, end);
      update_.run()(step, given, out, at, next);
      write_copy(args, at, next);
    }
  }

  // Copies the elements of the parameter that have just been written.
  void write_copy(const KernelArgs& args, int64_t begin, int64_t end) const {
    FlatProgram::Space space;
    const void* const parameter[] = {args.outputs[0]};
    copy_->begin(parameter, space);
    char* const to = static_cast<char*>(args.outputs[calls_.replaced]);
    for (int64_t at = begin; at < end; at += kTile)
      copy_->make(space, at, std::min(kTile, end - at), to + at * copy_size_);
  }

  struct Range {
    const Step& step;
    const void* const* given;
    void* const* out;
    int64_t begin, end;
  };
  void run_with_gradient(const KernelArgs& args, size_t call, const Range& range) const {
    alignas(64) char made[kUpdatePiece * sizeof(double)];
    FlatProgram::Space space;
    const void* given[kMostFusedInputs] = {};
    for (size_t i = 0; i < calls_.inputs; ++i) given[i] = args.inputs[calls_.place(i, call)];
    gradient_->begin(given, space);
    const auto tensors = static_cast<size_t>(update_.tensors());
    for (int64_t at = range.begin; at < range.end; at += kUpdatePiece) {
      const int64_t n = std::min(kUpdatePiece, range.end - at);
      for (int64_t done = 0; done < n; done += kTile)
        gradient_->make(space, at + done, std::min(kTile, n - done), made + done * size_);
      const void* in[kMostUpdateOperands] = {};
      void* out[kMostUpdateOperands] = {};
      for (size_t k = 0; k < tensors; ++k)
        in[k] = k == 1 ? made : static_cast<const char*>(range.given[k]) + at * size_;
      for (size_t o = 0; o < calls_.replaced; ++o) out[o] = static_cast<char*>(range.out[o]) + at * size_;
      update_.run()(range.step, in, out, 0, n);
      if (copy_) write_copy(args, at, at + n);
    }
  }

  const UpdateCalls calls_;
  const UpdateStep update_;
  const int threads_;
  int64_t size_ = 0;           // of a parameter's elements, in bytes
  std::vector<int> operands_;  // of the step, as values of the body
  std::vector<int64_t> ends_;  // of the calls, when their parameters' elements are counted together
  int64_t total_ = 0;
  std::optional<FlatProgram> gradient_, copy_;
  int64_t copy_size_ = 0;  // of the copy's elements
};

std::unique_ptr<PreparedKernel> prepare_multi_update(const plan::KernelQuery& q, const PrepareContext& context) {
  const AttrGraph& body = UpdateCalls::body(q);
  SLUICE_CHECK_KIND(kUnsupported, body.inputs <= kMostFusedInputs,
                    "multi_update: a body of {} inputs; must be at most {}", body.inputs, kMostFusedInputs);
  return std::make_unique<MultiUpdate>(q, body, context.threads);
}

}  // namespace

void add_multi_update_kernel(KernelTable& table) {
  KernelDef def{.op = "multi_update", .prepare = prepare_multi_update};
  for (int output = 0; output < kMostUpdateOutputs; ++output) def.in_place.push_back({output, output});
  table.add(DeviceKind::kCpu, std::move(def));
}

}  // namespace sluice::cpu
