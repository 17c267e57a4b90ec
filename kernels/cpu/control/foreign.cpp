// foreign: a cluster that a foreign backend computes where the process has loaded it, and else Sluice's own kernels.
#include "plan/foreign/foreign.h"

#include <atomic>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/mutex.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

// The program as kernel "loop" of one turn, whose results have an axis for turns.
std::unique_ptr<PreparedKernel> prepare_program(const plan::KernelQuery& query, const PrepareContext& context) {
  SLUICE_CHECK_KIND(kRuntime, context.kernels != nullptr, "foreign: prepared without a table of kernels");
  plan::KernelQuery loop = query;
  loop.op = "loop";
  loop.attrs = {{"program", get_attr<AttrGraph>(query.attrs, "program")},
                {"states", int64_t{0}},
                {"rows", int64_t{0}},
                {"length", int64_t{1}},
                {"reverse", false}};
  for (TensorSpec& output : loop.outputs) {
    TensorType stacked{output.dtype, output.shape};
    stacked.shape.insert(0, 1);
    output = TensorSpec::contiguous(stacked);
  }
  return context.kernels->get(loop.op, query.device.kind).prepare(loop, context);
}

// Says once for each backend that it is not there.
void tell_missing(const std::string& name) {
  static Mutex mutex;
  static std::set<std::string> told;
  const MutexLock lock(mutex);
  if (told.insert(name).second)
    log(LogLevel::kWarn, LogArea::kKernels,
        "backend '{}': not loaded in this process; Sluice computes the clusters that the plan has for it", name);
}

// Invariant: what is compiled once stays, so that a step in flight never loses it.
class Foreign final : public PreparedKernel {
 public:
  Foreign(const plan::KernelQuery& query, const PrepareContext& context)
      : name_(get_attr<std::string>(query.attrs, "backend")),
        options_(get_attr<Strings>(query.attrs, "options")),
        body_(get_attr<AttrGraph>(query.attrs, "body")),
        threads_(context.threads),
        program_(prepare_program(query, context)) {
    check_attr_graph(body_, query.inputs.size(), query.outputs.size(), true);
    for (const TensorSpec& input : query.inputs) inputs_.push_back({input.dtype, input.shape});
    check_outputs(query.outputs);
    workspace_bytes_ = program_->workspace_bytes();  // whoever computes: a plan runs with the backend and without
    held_bytes_ = program_->held_bytes();
    if (code() == nullptr && plan::find_foreign(name_) == nullptr) tell_missing(name_);
  }

  void run(const KernelArgs& args) const override {
    const plan::ForeignCode* const code = this->code();
    if (code == nullptr) return program_->run(args);
    code->run(args.inputs, args.outputs);
  }

 private:
  // A plan from a file may say anything: a backend writes as many bytes as the body says.
  void check_outputs(const std::vector<TensorSpec>& outputs) const {
    std::vector<TensorType> types = inputs_;
    for (const AttrCall& call : body_.calls)
      for (const TensorSpec& result : call.results) types.push_back({result.dtype, result.shape});
    for (size_t o = 0; o < outputs.size(); ++o) {
      const TensorType& said = types[static_cast<size_t>(body_.outputs[o])];
      const TensorType given{outputs[o].dtype, outputs[o].shape};
      SLUICE_CHECK_KIND(kType, said == given, "foreign: output {} is {}; its body gives {}", o, given.str(),
                        said.str());
    }
  }

  // Null where Sluice computes. Asks again after a library was loaded.
  const plan::ForeignCode* code() const {
    const uint64_t now = plan::foreign_generation() + 1;
    if (asked_.load(std::memory_order_acquire) != now) compile(now);
    return compiled_.load(std::memory_order_acquire);
  }

  void compile(uint64_t now) const {
    const MutexLock lock(mutex_);
    if (asked_.load(std::memory_order_relaxed) == now) return;
    const plan::ForeignBackend* const backend = owned_ || failed_ ? nullptr : plan::find_foreign(name_);
    if (backend != nullptr) {
      std::string reason;
      owned_ = backend->compile({body_, inputs_, options_, threads_}, reason);
      failed_ = owned_ == nullptr;
      if (failed_)
        log(LogLevel::kWarn, LogArea::kKernels,
            "backend '{}': a cluster of {} nodes is not compiled: {}; Sluice computes it", name_, body_.calls.size(),
            reason);
      compiled_.store(owned_.get(), std::memory_order_release);
    }
    asked_.store(now, std::memory_order_release);
  }

  const std::string name_;
  const Strings options_;
  const AttrGraph body_;
  const int threads_;
  const std::unique_ptr<PreparedKernel> program_;
  std::vector<TensorType> inputs_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<plan::ForeignCode> owned_ SLUICE_GUARDED_BY(mutex_);
  mutable bool failed_ SLUICE_GUARDED_BY(mutex_) = false;
  mutable std::atomic<const plan::ForeignCode*> compiled_{nullptr};
  mutable std::atomic<uint64_t> asked_{0};  // foreign_generation() + 1 when it was last looked for
};

}  // namespace

void add_foreign_kernel(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "foreign",
                               .prepare = [](const plan::KernelQuery& query,
                                             const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
                                 return std::make_unique<Foreign>(query, context);
                               },
                               .made_of = {"loop"}});
}

}  // namespace sluice::cpu
