#pragma once
// A model: its versions, and the operations on it, one after the other.
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "serving/repository/tree.h"

namespace sluice::serving {

struct ReadResult {
  std::shared_ptr<const Draft> draft;
  std::optional<Error> error;
};
using ReadResultPtr = std::shared_ptr<ReadResult>;

// Invariants: `now` is there while an operation is under way; `loading` while a version is loaded for it. A version is
// in one of loading, live and leaving. The table's entry for the model is what publish() last wrote.
class ModelState {
 public:
  using Self = caf::stateful_actor<ModelState>;
  void begin(Self* actor, ContextPtr with, std::string called, caf::actor parent);
  void add(const OperationPtr& operation);
  void has_read(const ReadResultPtr& result);
  void has_needs(const NeedsPtr& needs);
  void prepared(const LoadPtr& load);
  void up(const LoadPtr& load);

 private:
  struct Live {
    ServedPtr served;
    LoadPtr load;
    caf::actor actor;
  };
  struct Failure {
    std::string print, reason;
  };
  // The operation under way.
  struct Now {
    OperationPtr operation;
    std::shared_ptr<const Draft> draft;
    size_t next = 0, have = 0;  // in the draft's versions; of them that are served
    std::set<int64_t> kept, loaded;
    std::deque<LoadPtr> again;  // to be loaded again, if what they made room for fails
    std::vector<Error> errors;
    std::set<std::string> steps;
    bool changed = false, waits_for_room = false;
  };
  void next();
  void read();
  void unload();
  void unloaded();
  void walk();
  bool keeps(const Load& load);
  void keep(int64_t number);
  void start(const LoadPtr& load);
  std::vector<int64_t> victims(const Load& load) const;
  static LoadPtr copy_of(const Load& load);
  void room();
  void load_failed(const Error& error, bool full = false);
  void retire(int64_t number);
  void finish();
  void end();
  bool ended(const caf::actor_addr& who, const caf::error& reason);
  void lost(int64_t number, const Error& error);
  void publish();

  Self* self_ = nullptr;
  ContextPtr context_;
  std::string name_;
  caf::actor repository_;
  std::deque<OperationPtr> waiting_;
  std::optional<Now> now_;
  bool in_next_ = false;
  std::map<int64_t, Live> live_;
  std::map<int64_t, Failure> failed_;  // of the files as they were when that was tried
  std::map<caf::actor_addr, int64_t> leaving_;
  LoadPtr loading_;
  caf::actor loader_;
  std::chrono::steady_clock::time_point loading_since_;
  std::map<std::string, int64_t> labels_;
  std::string trouble_;  // why its files cannot be read
  std::set<std::string> steps_;
  std::set<int64_t> were_;  // served, before it was unloaded
  bool away_ = false;       // unloaded
  int restarts_ = 0;
};

}  // namespace sluice::serving

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(sluice::serving::ReadResultPtr)
