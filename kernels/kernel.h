#pragma once
// Kernels are two-phase: prepare once per op, attributes and operand specs; run many times on raw pointers.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/attr.h"
#include "base/device.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/tensor_spec.h"
#include "plan/target.h"

namespace sluice {

class Stream;

// Operand pointers of one run, in the order of the op's inputs and outputs. A null input is an absent optional input.
struct KernelArgs {
  const void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* workspace = nullptr;  // workspace_bytes() bytes, 64-aligned
  Stream* stream = nullptr;   // where it runs; null for eager calls on the caller's thread
  // Appended to errors that surface after run() returned (asynchronous streams): "op 'conv1', train.py:41". Outlives
  // the work; may be null.
  const std::string* context = nullptr;
  // False where the outputs hold what this kernel's runs have made before of the same value (op "accumulate").
  bool first = true;
  // A kernel with branches (KernelDef::branches) reads here which inputs are void, and says here which outputs are;
  // none is as it begins. Null where nobody asks: then no input is void, and it writes every output.
  const bool* void_inputs = nullptr;
  bool* void_outputs = nullptr;
};

class PreparedKernel;

// An input that a kernel reads packed, where the query allows it.
struct Packing : plan::PackedInput {
  std::shared_ptr<const PreparedKernel> kernel;  // writes `bytes` bytes from the input as the query lays it
};

// Immutable after construction; run() may be called from several threads at once with different workspaces.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  uint64_t workspace_bytes() const { return workspace_bytes_; }
  // Throws Error when it cannot compute. Writes every element of every output.
  virtual void run(const KernelArgs& args) const = 0;
  // Whether run() with the same pointers, and `first`, always queues the same work, all of it on the stream, and
  // neither waits nor allocates: then a stream may repeat that work without run() (Chain), but for the first time.
  bool repeatable() const { return repeatable_; }
  // Whether run() computes on cores of the machine, which are leased for it. False: it may wait for anything, also for
  // somebody else who needs them.
  bool needs_cores() const { return needs_cores_; }
  // Memory it keeps until it goes, as far as it is worth counting: compiled code, tables.
  uint64_t held_bytes() const { return held_bytes_; }
  // Those of KernelQuery::packed that run() takes packed; it takes the others as they are.
  const std::vector<Packing>& packings() const { return packings_; }
  // The library whose code run() calls ("cuBLASLt"), where it is a vendor's that the op's other kernels do without;
  // else "".
  virtual const char* library() const { return ""; }

 protected:
  uint64_t workspace_bytes_ = 0;
  uint64_t held_bytes_ = 0;
  std::vector<Packing> packings_;
  bool repeatable_ = false;
  bool needs_cores_ = true;
};

using HostFunction = std::function<void(const KernelArgs& args, const std::vector<TensorSpec>& inputs,
                                        const std::vector<TensorSpec>& outputs)>;
// User functions that run as kernels, by the attribute that KernelDef::function names.
using HostFunctions = std::map<std::string, HostFunction>;

class KernelTable;

struct PrepareContext {
  int threads = 1;                           // OpenMP threads run() may use; results may depend on it
  const HostFunctions* functions = nullptr;  // REQUIRES: outlives the kernel
  const KernelTable* kernels = nullptr;      // of what the kernel may be made
};

using PrepareFn =
    std::function<std::unique_ptr<PreparedKernel>(const plan::KernelQuery& query, const PrepareContext& context)>;

// A kernel of one op on one kind of device. prepare() depends on the query and on threads alone, so that one prepared
// kernel serves all equal queries (KernelCache), unless it calls a function of the program.
struct KernelDef {
  std::string op;
  PrepareFn prepare;                                                                  // throws Error when unsupported
  std::function<plan::LayoutPreference(const plan::KernelQuery&)> layouts = nullptr;  // null: contiguous operands
  std::vector<plan::InPlacePair> in_place = {};                                       // output may overwrite input
  // The implementations by name, the usual one first, of those that a query can ask for by plan::kImplementation. Null:
  // there is one.
  std::function<std::vector<std::string>(const plan::KernelQuery&, const PrepareContext&)> implementations = nullptr;
  bool (*can_fuse)(const plan::KernelQuery&) = nullptr;                   // plan::Target::can_fuse; null: never
  Ints (*padded_sizes)(const plan::KernelQuery&) = nullptr;               // plan::Target::padded_sizes; null: none
  std::function<std::string(const plan::KernelQuery&)> source = nullptr;  // plan::Target::source; null: none
  // The attribute that names the program's HostFunction which it calls, and which needs no workspace; "": it has code
  // of its own.
  std::string function = {};
  std::vector<int> packs = {};  // inputs that it may want packed; its device reads host memory, on the caller's thread
  // It wants them so only where they stay as they are for many runs, since it reads them as they lie nearly as fast.
  bool packs_if_kept = false;
  std::string library = {};  // that prepare() may choose here: PreparedKernel::library()
  // run() takes void inputs and says which outputs are void (KernelArgs). Whoever fires it reads the answer when run()
  // returns, so it is a kernel of the host. Kernels without branches are left out where an input is void.
  bool branches = false;
  std::vector<std::string> made_of = {};  // ops whose kernels on the same device it runs
};

// Kernels by (op, device kind). Filled by explicit lists: add_cpu_kernels(table). Thread-safe: an extension may add its
// own while others look theirs up.
class KernelTable {
 public:
  KernelTable() = default;
  KernelTable(const KernelTable& other);
  void add(DeviceKind kind, KernelDef def);  // throws kValue when already there
  // Takes the place of the kernel that is there, which stays alive for those who hold it.
  void replace(DeviceKind kind, KernelDef def);
  // Takes out the kernels of other ops. Errors about them name the build option that has chosen these.
  void keep_only(DeviceKind kind, const std::set<std::string>& ops, const std::string& option);
  const KernelDef* find(const std::string& op, DeviceKind kind) const;  // null when absent
  // The kernel, or throws kUnsupported "<op>: no kernel on <device>; ..." naming the devices that have one.
  const KernelDef& get(const std::string& op, DeviceKind kind) const;
  std::vector<std::string> ops(DeviceKind kind) const;
  // Another one after each add() and replace(): what was found before may not be what is found now.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  mutable Mutex mutex_;
  std::map<std::pair<DeviceKind, std::string>, std::shared_ptr<const KernelDef>> defs_ SLUICE_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const KernelDef>> replaced_ SLUICE_GUARDED_BY(mutex_);
  std::string left_out_by_ SLUICE_GUARDED_BY(mutex_);  // the option of keep_only()
  std::atomic<uint64_t> version_{0};
};

}  // namespace sluice
