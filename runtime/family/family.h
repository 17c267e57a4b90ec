#pragma once
// Sessions of the plans of one family, over the same variables and the same memory: a call runs the smallest that fits.
//
//   SessionFamily family = SessionFamily::load(engine, "out/digits");   // a bundle of a plan, or of a family
//   FamilyStep step = family.submit(inputs);
//
// A plan alone is a family of one member without dims, and costs nothing more than its session. Only one of several
// members at a time has steps in flight: a call of another one waits until those have ended.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/data_roots.h"
#include "plan/family/family.h"
#include "runtime/bundle/bundle_source.h"
#include "runtime/family/family_trace.h"
#include "runtime/session/session.h"

namespace sluice {

class Engine;

// One submitted call: a step of a member, or of several where it was split. Cheap to copy. Thread-safe.
class FamilyStep {
 public:
  uint64_t step() const;  // its number; where there are several members, of the family
  bool done() const;
  Status wait();
  Status wait(Timeout timeout);
  // wait(), throws the error, and gives the results, cut and joined as the call was.
  const std::vector<OutputTensor>& outputs();
  // StepHandle::cancel() of what it consists of. False where it was too late for all of that.
  bool cancel();

 private:
  friend class SessionFamily;
  struct State;
  std::shared_ptr<State> state_;
};

// Thread safety: as Session's.
class SessionFamily {
 public:
  // Throws as load_session() does. roots: where files of plans lie here.
  static SessionFamily load(Engine& engine, const BundleSource& source, SessionOptions options = {},
                            const Weights& given = {}, const DataRoots& roots = {});
  // Makes a family of a plan alone.
  explicit SessionFamily(Session session);
  ~SessionFamily();
  SessionFamily(SessionFamily&&) noexcept;
  SessionFamily& operator=(SessionFamily&&) = delete;

  // The inputs and results of calls. Axes of a dim are as long as it may be at most; kOther ones, as long as in any
  // member.
  const plan::Family& family() const;
  std::vector<PortInfo> inputs() const;
  std::vector<PortInfo> outputs() const;
  // Axes of outputs that are as long as a step makes them, by the number of the output, whatever the family's dims; of
  // a plan for one process.
  std::vector<plan::ResultExtent> varying_outputs() const;
  // Every byte of the members' plans, what they share counted once.
  plan::FamilyLedger ledger() const;

  FamilyStep submit(std::span<const InputTensor> inputs, const StepCall& call = {});
  // Nothing where it would have to wait. A call that is split waits for nothing before its first part.
  std::optional<FamilyStep> try_submit(std::span<const InputTensor> inputs, const StepCall& call = {});
  // One step into memory of the caller's. A family of one plan allocates nothing here, once warm.
  void run(std::span<const InputTensor> inputs, std::span<const OutputTensor> outputs);
  void wait_all();
  // Resets every member: Session::reset().
  void reset();
  void stop();
  // The same as Session's, for all members. Switching it off waits for nothing.
  void set_trace(bool on);
  FamilyTrace take_trace();
  // Counts of all members together; actors, streams and registers of several are called "<n>/<name>".
  SessionStats stats() const;

 private:
  struct Core;
  explicit SessionFamily(std::unique_ptr<Core> core);
  std::optional<FamilyStep> submit(std::span<const InputTensor> inputs, bool try_only, const StepCall& call);
  std::unique_ptr<Core> core_;
};

}  // namespace sluice
