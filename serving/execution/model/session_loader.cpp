#include "serving/execution/model/session_loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "serving/core/log.h"
#include "serving/execution/errors.h"
#include "sluice/compile.h"

namespace sluice::serving {

// Sessions of plans for all cores take turns; those of narrower ones run at the same time.
void SessionLoader::plan_for(int instances) {
  const int cores = std::max(1, engine_.cores() / instances);
  if (instances > 1 && cores < engine_.cores()) plan_anew(cores);
}

// From the bundle's graph, for this machine. 0: for all cores.
void SessionLoader::plan_anew(int cores) {
  if (scratch_ == nullptr) scratch_ = std::make_unique<ScratchFolder>();
  const std::string to = scratch_->path() + "/" + std::to_string(cores);
  api::CompileOptions options;
  options.cores = cores;
  api::replan(engine_, bundle_, to, options);
  bundle_ = to;
}

std::shared_ptr<api::Session> SessionLoader::load(OnOutput on_output) const {
  api::SessionOptions options;
  options.zero_copy = true;
  // A step so short is run by the thread that brings its request: to hand it to another takes as long.
  options.inline_up_to = std::chrono::microseconds(100);
  options.on_output_inline = true;
  options.on_output = std::move(on_output);
  options.flush_denormals = flush_denormals_;
  return std::make_shared<api::Session>(api::Session::load(engine_, bundle_, std::move(options)));
}

std::shared_ptr<api::Session> SessionLoader::load_first(const OnOutput& on_output) {
  try {
    return load(on_output);
  } catch (const api::Error& error) {
    if (error.kind() != api::ErrorKind::kUnsupported) throw;
    const std::exception_ptr why = std::current_exception();
    try {
      plan_anew(0);
    } catch (const api::Error&) {
      std::rethrow_exception(why);
    }
    log_warning(fmt::format("{}: its plan was made for another machine, and is made anew: {}", where_,
                            client_text(error.what())));
  }
  return load(on_output);
}

}  // namespace sluice::serving
