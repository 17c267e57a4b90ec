#pragma once
// The control plane: a tree of actors, repository -> model -> version. Each holds its own state and answers at once,
// for what takes long (reading files, loading, draining) runs on detached actors. Children are linked to their parents,
// which hear of their ends: a version that fails ends with the reason, and the model goes on with those it has.
#include <caf/all.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serving/core/error.h"
#include "serving/core/server.h"
#include "serving/repository/context.h"

namespace sluice::serving {

using ContextPtr = std::shared_ptr<Context>;
// Nothing: it went well.
using Done = std::function<void(std::optional<Error>)>;

// Something to be done with one model, after what was asked for before.
struct Operation {
  enum class Kind { kLoad, kUnload, kNothing };  // kNothing: done when all before it is
  Kind kind = Kind::kLoad;
  std::string model;
  std::function<Draft()> read;  // of kLoad: on a detached actor
  bool force = false;           // also what has not changed, or has failed and not changed
  bool forget = false;          // of kUnload: the model is in no repository any more
  bool stays = false;           // of kLoad: the index tells of it, too, when there is no such model
  Done done = {};

  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  // Whoever waits for it is told, also when an actor ended before it came to it.
  ~Operation() { finish(Error(Code::kUnavailable, "model '" + model + "': it ended meanwhile; ask again")); }
  void finish(const std::optional<Error>& error) {
    if (done) std::exchange(done, nullptr)(error);
  }
};
using OperationPtr = std::shared_ptr<Operation>;

// One version on its way, from its files to its end. Written by one actor after the other, never by two at a time.
struct Load {
  ContextPtr context;
  std::shared_ptr<const Draft> draft;
  VersionFiles files;
  std::function<ExecutorSpec::Step(const std::string&, int64_t)> step;
  bool again = false;  // it was served, went to make room, and comes back since what it made room for failed

  std::string print() const { return draft->fingerprint + files.fingerprint; }
  std::string where() const { return who(draft->source.name, files.number); }

  // The version completes it as it goes on.
  ExecutorSpec spec;
  uint64_t bytes = 0;
  Ledger::Share share;  // by the model
  ServedPtr served;
  std::optional<Error> error;
};
using LoadPtr = std::shared_ptr<Load>;

// The models that a model needs before it can be loaded, the steps of an ensemble; sent to the repository, and back
// when they are there or have failed.
struct Needs {
  std::string model;
  std::set<std::string> steps;
  std::optional<Error> error;
};
using NeedsPtr = std::shared_ptr<Needs>;

// From a model to the repository, after each operation.
struct ModelNews {
  std::string model;
  std::set<std::string> steps;  // of an ensemble that is served
  bool changed = false;         // it has other executors than before
  bool empty = false;           // nothing is left of it
};

// To the repository.
struct Unload {
  std::string model;
  bool dependents = false;
  Done done;
};
using UnloadPtr = std::shared_ptr<Unload>;

using prepared_atom = caf::atom_constant<caf::atom("prepared")>;  // version -> model, before it takes memory
using go_atom = caf::atom_constant<caf::atom("go")>;              // model -> version: take it
using up_atom = caf::atom_constant<caf::atom("up")>;              // version -> model
using left_atom = caf::atom_constant<caf::atom("left")>;          // to a version: nobody starts requests any more
using over_atom = caf::atom_constant<caf::atom("over")>;          // from a helper, with what it has done
using poll_atom = caf::atom_constant<caf::atom("poll")>;
using stop_atom = caf::atom_constant<caf::atom("stop")>;

// The actors' starts. `spawn_version` begins to load; it ends with the reason, or, some time after it came up, when its
// last request is answered and its memory is free.
caf::actor spawn_version(caf::event_based_actor* model, const LoadPtr& load);
caf::actor spawn_model(caf::event_based_actor* repository, const ContextPtr& context, const std::string& name);
// `started` gets the names of what is to be loaded at the start, once all that is loaded or has failed. The repository
// takes OperationPtr, UnloadPtr and stop_atom; it ends some time after that, when all models have.
using Started = std::function<void(const std::set<std::string>& names)>;
caf::actor spawn_repository(const ContextPtr& context, Started started);

// Runs `work` on a thread of its own, and then sends over_atom and what it returns to `self`. Nothing is sent when
// `self` has ended meanwhile.
template <class Work>
void run_detached(caf::event_based_actor* self, Work work) {
  // The function takes arguments because CAF refers to a null tuple when there are none.
  self->system().spawn<caf::detached>(
      [](caf::event_based_actor* helper, const caf::actor& to, const Work& body) {
        auto result = body();
        helper->send(to, over_atom::value, std::move(result));
      },
      caf::actor{self}, std::move(work));
}

caf::error to_caf(const Error& error);
// The error for the end of an actor: what it said, or that it ended.
Error from_caf(const std::string& where, const caf::error& error);

}  // namespace sluice::serving

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(sluice::serving::OperationPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(sluice::serving::LoadPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(sluice::serving::NeedsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(sluice::serving::UnloadPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(sluice::serving::ModelNews)
