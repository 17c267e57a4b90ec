#include "kernels/cpu/generated/rows_kernel.h"

#include <algorithm>

#include "base/log.h"
#include "kernels/cpu/generated/host_compiler.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/strides/tile_walk.h"
#include "plan/query.h"

namespace sluice::generated {
namespace {

// Without text where none is asked for.
RowSource asked_for(const plan::KernelQuery& query) {
  const bool asked = plan::beside<std::string>(query.attrs, plan::kImplementation, "") == plan::kGenerated;
  return asked ? row_source(query) : RowSource();
}

class Rows final : public PreparedKernel {
 public:
  // `least`: of the workspace, so that a plan made where there is a compiler serves where there is none.
  Rows(const RowSource& source, int threads, uint64_t least)
      : code_(compile(source.text)),
        function_(reinterpret_cast<RowsFunction>(code_->function(kRowsFunction))),
        rows_(source.rows),
        space_(source.space_bytes) {
    const int64_t grain = source.heavy ? cpu::kHeavyGrain : cpu::kLightGrain / 4;
    if (rows_ * source.length >= 2 * grain) workers_ = std::clamp<int64_t>(threads, 1, rows_);
    workspace_bytes_ = std::max(least, static_cast<uint64_t>(workers_) * space_);
    held_bytes_ = code_->bytes();
  }

  void run(const KernelArgs& args) const override {
    cpu::parallel_ranges(static_cast<int>(workers_), workers_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t worker = begin; worker < end; ++worker)
        function_(args.inputs, args.outputs, static_cast<char*>(args.workspace) + worker * static_cast<int64_t>(space_),
                  rows_ * worker / workers_, rows_ * (worker + 1) / workers_);
    });
  }

 private:
  const std::shared_ptr<const Code> code_;
  const RowsFunction function_;
  const int64_t rows_;
  const uint64_t space_;
  int64_t workers_ = 1;
};

}  // namespace

std::string text_of(const plan::KernelQuery& query) { return asked_for(query).text; }

std::unique_ptr<PreparedKernel> prepare_rows(const plan::KernelQuery& query, int threads,
                                             std::unique_ptr<PreparedKernel> usual) {
  const RowSource source = asked_for(query);
  if (source.text.empty()) return usual;
  if (host_compiler().empty()) {
    log(LogLevel::kWarn, LogArea::kKernels,
        "fused_rows: a generated kernel is asked for, and there is no g++ here; its usual one serves");
    return usual;
  }
  return std::make_unique<Rows>(source, threads, usual->workspace_bytes());
}

}  // namespace sluice::generated
