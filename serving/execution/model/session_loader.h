#pragma once
// Loads the sessions of a model's instances, from its bundle or from one that is planned anew for them.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serving/execution/scratch.h"
#include "sluice/session.h"

namespace sluice::serving {

// Invariant: bundle() is the bundle that was given, or one in `scratch_` that was planned from it; it changes only
// until the first session is there. From then on any thread may load.
class SessionLoader {
 public:
  using OnOutput =
      std::function<void(uint64_t step, const std::vector<api::Tensor>& outputs, const std::string& error)>;

  // `where`: for errors. `scratch` may hold the bundle. `flush_denormals`: as api::SessionOptions says. The engine
  // outlives this.
  SessionLoader(api::Engine& engine, std::string where, std::string bundle, std::unique_ptr<ScratchFolder> scratch,
                bool flush_denormals)
      : engine_(engine),
        where_(std::move(where)),
        flush_denormals_(flush_denormals),
        bundle_(std::move(bundle)),
        scratch_(std::move(scratch)) {}

  const std::string& bundle() const { return bundle_; }
  // Plans for a share of the cores, where several instances would take turns on all of them.
  void plan_for(int instances);
  // A session that calls `on_output` behind each step, maybe in the thread that submits it.
  std::shared_ptr<api::Session> load(OnOutput on_output) const;
  // The first one, of a bundle that may be of another machine: where it has kernels that there are not here, it is
  // planned anew.
  std::shared_ptr<api::Session> load_first(const OnOutput& on_output);

 private:
  void plan_anew(int cores);

  api::Engine& engine_;
  const std::string where_;
  const bool flush_denormals_;
  std::string bundle_;
  std::unique_ptr<ScratchFolder> scratch_;  // of bundles made here
};

}  // namespace sluice::serving
