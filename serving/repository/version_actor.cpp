// A version: prepares itself, waits for its memory, loads, serves, and ends when nobody uses it any more.
#include <fmt/format.h>

#include "serving/core/log.h"
#include "serving/execution/errors.h"
#include "serving/repository/tree.h"

namespace sluice::serving {

namespace {

constexpr std::chrono::minutes kLongestDrain(10);

struct VersionState {
  LoadPtr load;
  // The executor that requests use; as long as the version serves.
  std::shared_ptr<Executor> executor;
  bool loading = false;

  // An executor's end waits for its kernels, so it is let go of on a thread that may wait.
  ~VersionState() {
    if (executor == nullptr) return;
    load->context->actors.spawn<caf::detached>(
        [](caf::event_based_actor*, const std::shared_ptr<std::shared_ptr<Executor>>& last) { *last = nullptr; },
        std::make_shared<std::shared_ptr<Executor>>(std::move(executor)));
  }
};

// Runs what may throw, and notes what it threw.
template <class Work>
LoadPtr guarded(const LoadPtr& load, Work&& work) {
  try {
    try {
      work();
    } catch (...) {
      rethrow_as_error(load->where());
    }
  } catch (const Error& error) {
    load->error = error;
  } catch (...) {
    load->error = Error(Code::kInternal, load->where() + ": it threw something that is no std::exception");
  }
  return load;
}

// The things that are held as long as the executor is, by whomever.
struct Held {
  std::vector<Folder> folders;
  Ledger::Share share;
  std::shared_ptr<Executor> executor;
};

void load_executor(Load& load, const caf::actor& self, std::vector<Folder> folders) {
  const auto held = std::make_shared<Held>();
  held->folders = std::move(folders);
  held->share = std::move(load.share);
  const auto served = std::make_shared<Served>();
  served->number = load.files.number;
  served->version = load.spec.version;
  served->bundle = load.spec.bundle;
  served->config = load.spec.config;
  held->executor = load.context->executors.make(load.context->machine(), load.spec);
  served->executor = std::shared_ptr<Executor>(held, held->executor.get());
  served->left = [self] { caf::anon_send(self, left_atom::value); };
  load.served = served;
}

caf::behavior version_behavior(caf::stateful_actor<VersionState>* self, const caf::actor& model, const LoadPtr& load) {
  self->state.load = load;
  const auto folders = std::make_shared<std::vector<Folder>>();
  run_detached(self, [load, folders] {
    return guarded(load, [&] {
      Prepared prepared = prepare(*load->draft, load->files, load->context->options.auto_config);
      prepared.spec.step = load->step;
      *folders = std::move(prepared.held);
      load->spec = std::move(prepared.spec);
      load->bytes = load->context->executors.ledger(load->spec);
    });
  });
  return {
      [self, model](over_atom, const LoadPtr& load) {
        if (load->error) return self->quit(to_caf(*load->error));
        if (!self->state.loading) return self->send(model, prepared_atom::value, load);
        self->state.executor = load->served->executor;
        self->send(model, up_atom::value, load);
      },
      [self, folders](go_atom) {
        self->state.loading = true;
        const caf::actor me{self};
        run_detached(self, [load = self->state.load, folders, me] {
          return guarded(load, [&] { load_executor(*load, me, std::move(*folders)); });
        });
      },
      [self](left_atom) {
        if (self->state.executor == nullptr) return;
        // The executor is this function's alone from here on, but for ensembles.
        run_detached(self, [executor = std::make_shared<std::shared_ptr<Executor>>(std::move(self->state.executor)),
                            context = self->state.load->context, where = self->state.load->where()] {
          context->leavers.add(*executor);
          if (!(*executor)->drain(kLongestDrain)) log_warning(where + ": requests were cancelled at its end");
          context->leavers.remove(*executor);
          *executor = nullptr;
          return true;
        });
      },
      [self](over_atom, bool) { self->quit(); },
  };
}

}  // namespace

caf::actor spawn_version(caf::event_based_actor* model, const LoadPtr& load) {
  return model->spawn<caf::linked>(version_behavior, caf::actor{model}, load);
}

}  // namespace sluice::serving
