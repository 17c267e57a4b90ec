// foreign: a cluster that a foreign backend computes where the process has loaded it, and else Sluice's own kernels.
#include "plan/foreign/foreign.h"

#include <atomic>
#include <cstring>
#include <list>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "base/mutex.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/support/support.h"
#include "plan/foreign/initializers.h"

namespace sluice::cpu {
namespace {

// The program as kernel "loop" of one turn, whose results have an axis for turns.
std::unique_ptr<PreparedKernel> prepare_program(const plan::KernelQuery& query, const PrepareContext& context) {
  SLUICE_CHECK_KIND(kRuntime, context.kernels != nullptr, "foreign: prepared without a table of kernels");
  plan::KernelQuery loop = query;
  loop.op = "loop";
  loop.packed.clear();
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

// A weight as a cluster's kernel reads it: 16 letters that tell its contents, and behind kSealBytes the contents. So a
// packed copy, which follows its variable (ADR 21), tells the kernel when the variable has changed.
constexpr size_t kSealBytes = 64, kSealLetters = 16;
constexpr const char* kSealed = "fingerprint of 16 letters, filled up to 64 bytes, and the elements row by row";

class Seal final : public PreparedKernel {
 public:
  explicit Seal(uint64_t bytes) : bytes_(bytes) {}
  void run(const KernelArgs& args) const override {
    auto* const to = static_cast<std::byte*>(args.outputs[0]);
    Fingerprint fingerprint;
    fingerprint.add(args.inputs[0], bytes_);
    std::memset(to, 0, kSealBytes);
    std::memcpy(to, fingerprint.str().data(), kSealLetters);
    if (bytes_ > 0) std::memcpy(to + kSealBytes, args.inputs[0], bytes_);
  }

 private:
  const uint64_t bytes_;
};

// Compiled code by the weights that it has in it. The last few are kept, for steps in flight, and since all graphs of a
// shape share a kernel.
class CodeOfWeights {
 public:
  using Code = std::shared_ptr<const plan::ForeignCode>;

  // The kernel that `make` has made for these weights; null if it could not.
  template <class Make>
  Code get(const std::string& weights, Make make) {
    constexpr size_t kKept = 4;
    const MutexLock lock(mutex_);
    for (auto at = known_.begin(); at != known_.end(); ++at) {
      if (at->first != weights) continue;
      known_.splice(known_.begin(), known_, at);
      return known_.front().second;
    }
    known_.emplace_front(weights, make());
    if (known_.size() > kKept) known_.pop_back();
    return known_.front().second;
  }

 private:
  Mutex mutex_;
  std::list<std::pair<std::string, Code>> known_ SLUICE_GUARDED_BY(mutex_);
};

// Invariants
//  1. What is compiled stays as long as a step runs it.
//  2. A backend that takes weights as constants compiles in a step, when they are there; else when the kernel is
//  prepared.
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
    const plan::ForeignBackend* const backend = plan::find_foreign(name_);
    if (backend != nullptr && backend->wants_constants()) take_weights(query, *backend);
    if (packings_.empty() && code() == nullptr && backend == nullptr) tell_missing(name_);
  }

  void run(const KernelArgs& args) const override {
    if (!packings_.empty()) return run_with_weights(args);
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

  // Asks for the inputs that do not change as sealed copies.
  void take_weights(const plan::KernelQuery& query, const plan::ForeignBackend& backend) {
    std::vector<bool> constants(inputs_.size(), false);
    std::vector<Packing> wanted;
    for (const int input : query.packed) {
      const TensorSpec& spec = query.inputs[static_cast<size_t>(input)];
      if (!plan::has_onnx_type(spec.dtype)) continue;
      constants[static_cast<size_t>(input)] = true;
      const uint64_t bytes = spec.extent_bytes();
      wanted.push_back({{input, kSealed, kSealBytes + bytes}, std::make_shared<Seal>(bytes)});
    }
    if (wanted.empty()) return;
    try {
      model_ = backend.model_without({body_, inputs_, options_, threads_}, constants);
    } catch (const Error&) {
      return;  // without weights it is refused for the same reason, which is told then
    }
    packings_ = std::move(wanted);
  }

  void run_with_weights(const KernelArgs& args) const {
    std::vector<const void*> inputs(args.inputs, args.inputs + inputs_.size());
    std::string weights;
    weights.reserve(packings_.size() * kSealLetters);
    for (const Packing& packing : packings_) {
      const void*& input = inputs[static_cast<size_t>(packing.input)];
      weights.append(static_cast<const char*>(input), kSealLetters);
      input = static_cast<const std::byte*>(input) + kSealBytes;
    }
    const CodeOfWeights::Code code = by_weights_.get(weights, [&] { return compiled_with(inputs); });
    if (code != nullptr) return code->run(inputs.data(), args.outputs);
    KernelArgs own = args;
    own.inputs = inputs.data();
    program_->run(own);
  }

  CodeOfWeights::Code compiled_with(const std::vector<const void*>& inputs) const {
    plan::ForeignCluster cluster{body_, inputs_, options_, threads_, std::vector<const void*>(inputs.size()), model_};
    for (const Packing& packing : packings_)
      cluster.constants[static_cast<size_t>(packing.input)] = inputs[static_cast<size_t>(packing.input)];
    return compile(*plan::find_foreign(name_), cluster);
  }

  // Null where it cannot, which is told once.
  std::unique_ptr<plan::ForeignCode> compile(const plan::ForeignBackend& backend,
                                             const plan::ForeignCluster& cluster) const {
    if (failed_.load(std::memory_order_relaxed)) return nullptr;
    std::string reason;
    std::unique_ptr<plan::ForeignCode> code = backend.compile(cluster, reason);
    if (code == nullptr && !failed_.exchange(true))
      log(LogLevel::kWarn, LogArea::kKernels,
          "backend '{}': a cluster of {} nodes is not compiled: {}; Sluice computes it", name_, body_.calls.size(),
          reason);
    return code;
  }

  // Null where Sluice computes. Asks again after a library was loaded.
  const plan::ForeignCode* code() const {
    const uint64_t now = plan::foreign_generation() + 1;
    if (asked_.load(std::memory_order_acquire) != now) look(now);
    return compiled_.load(std::memory_order_acquire);
  }

  void look(uint64_t now) const {
    const MutexLock lock(mutex_);
    if (asked_.load(std::memory_order_relaxed) == now) return;
    const plan::ForeignBackend* const backend = owned_ ? nullptr : plan::find_foreign(name_);
    if (backend != nullptr) {
      owned_ = compile(*backend, {body_, inputs_, options_, threads_});
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
  std::string model_;  // of ONNX, without the weights
  mutable CodeOfWeights by_weights_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<plan::ForeignCode> owned_ SLUICE_GUARDED_BY(mutex_);
  mutable std::atomic<bool> failed_{false};
  mutable std::atomic<const plan::ForeignCode*> compiled_{nullptr};
  mutable std::atomic<uint64_t> asked_{0};  // foreign_generation() + 1 when it was last looked for
};

// Any input of a cluster may be a weight.
std::vector<int> all_inputs() {
  std::vector<int> inputs(4096);
  std::iota(inputs.begin(), inputs.end(), 0);
  return inputs;
}

}  // namespace

void add_foreign_kernel(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "foreign",
                               .prepare = [](const plan::KernelQuery& query,
                                             const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
                                 return std::make_unique<Foreign>(query, context);
                               },
                               .packs = all_inputs(),
                               .made_of = {"loop"}});
}

}  // namespace sluice::cpu
