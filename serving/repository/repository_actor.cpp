// The repository: its models, what they need of each other, and the look at the folders.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "serving/core/log.h"
#include "serving/repository/tree.h"

namespace sluice::serving {

namespace {

// All models as their folders were at one time.
struct Scan {
  struct Found {
    std::string name;
    std::shared_ptr<const Draft> draft;
    std::optional<Error> error;
  };
  std::vector<Found> models;
  std::optional<Error> error;  // then nothing is known
};
using ScanPtr = std::shared_ptr<Scan>;

}  // namespace

}  // namespace sluice::serving

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(sluice::serving::ScanPtr)

namespace sluice::serving {

namespace {

ScanPtr scan(const ContextPtr& context, bool names_only) {
  const auto result = std::make_shared<Scan>();
  try {
    for (const std::string& name : context->catalog.names()) {
      Scan::Found& found = result->models.emplace_back();
      found.name = name;
      if (names_only) continue;
      try {
        found.draft = std::make_shared<const Draft>(read_draft(context->catalog.find(name)));
      } catch (const Error& error) {
        found.error = error;
      }
    }
  } catch (const Error& error) {
    result->error = error;
  } catch (const std::exception& error) {
    result->error = Error(Code::kInternal, std::string("model repository: ") + error.what());
  }
  return result;
}

class RepositoryState {
 public:
  using Self = caf::stateful_actor<RepositoryState>;
  void begin(Self* actor, ContextPtr with, Started call);
  void add(const OperationPtr& operation);
  void unload(const UnloadPtr& request);
  void needs(const NeedsPtr& needs);
  void settled(const NeedsPtr& needs);
  void news(const ModelNews& news);
  void look();
  void scanned(const ScanPtr& scan);
  void stop();

 private:
  struct Model {
    caf::actor actor;
    uint64_t asked = 0, done = 0;  // operations
    std::set<std::string> steps;   // of an ensemble that is served
    uint64_t changes = 0;
  };
  Model& model(const std::string& name);
  bool ended(const caf::actor_addr& who, const caf::error& reason);
  void send(const OperationPtr& operation);
  void refresh(const std::string& name);
  bool waits_for(const std::string& model, const std::string& other) const;
  OperationPtr load_of(const std::string& name) const;
  std::vector<std::string> users_of(const std::string& name) const;
  void begin_unload(const std::set<std::string>& names, const Done& done);
  void start_with(const std::set<std::string>& names);
  bool serves(const std::string& name) const;

  Self* self_ = nullptr;
  ContextPtr context_;
  Started started_;
  std::map<std::string, Model> models_;
  std::map<std::string, NeedsPtr> asking_;                       // models that wait for their steps
  std::map<std::string, std::map<std::string, uint64_t>> seen_;  // by ensemble: its steps' changes when it was loaded
  bool stopping_ = false, scanning_ = false;
};

void RepositoryState::begin(Self* actor, ContextPtr with, Started call) {
  self_ = actor;
  context_ = std::move(with);
  started_ = std::move(call);
  self_->set_exit_handler([this](const caf::exit_msg& message) {
    if (!ended(message.source, message.reason)) self_->quit(message.reason);
  });
  const ServerOptions& options = context_->options;
  const auto& names = options.startup_models;
  const bool all = std::find(names.begin(), names.end(), "*") != names.end();
  if (options.control != ModelControl::kExplicit || all) return look();
  start_with({names.begin(), names.end()});
}

void RepositoryState::start_with(const std::set<std::string>& names) {
  const Started call = std::exchange(started_, nullptr);
  if (names.empty()) return call(names);
  // Shared by the operations, for there may be tens of thousands of both.
  struct Start {
    std::set<std::string> names;
    Started call;
    std::atomic<size_t> left;
  };
  const auto start = std::make_shared<Start>(names, call, names.size());
  for (const std::string& name : names) model(name);
  for (const std::string& name : names) {
    const OperationPtr operation = load_of(name);
    operation->stays = true;
    operation->done = [start](const std::optional<Error>&) {
      if (--start->left == 0) start->call(start->names);
    };
    send(operation);
  }
}

RepositoryState::Model& RepositoryState::model(const std::string& name) {
  Model& model = models_[name];
  if (model.actor == nullptr) model.actor = spawn_model(self_, context_, name);
  return model;
}

void RepositoryState::send(const OperationPtr& operation) {
  Model& to = model(operation->model);
  ++to.asked;
  self_->send(to.actor, operation);
}

OperationPtr RepositoryState::load_of(const std::string& name) const {
  const auto operation = std::make_shared<Operation>();
  operation->model = name;
  operation->read = [context = context_, name] { return read_draft(context->catalog.find(name)); };
  return operation;
}

void RepositoryState::add(const OperationPtr& operation) {
  if (!stopping_) return send(operation);
  operation->finish(Error(Code::kUnavailable, "load: the server is shutting down"));
}

bool RepositoryState::serves(const std::string& name) const {
  const auto view = context_->table.read();
  const auto found = view.find(name);
  return found != view.end() && !found->second.served.empty();
}

// Is `model` `other`, or does it wait for it?
bool RepositoryState::waits_for(const std::string& model, const std::string& other) const {
  if (model == other) return true;
  const auto found = asking_.find(model);
  return found != asking_.end() && std::any_of(found->second->steps.begin(), found->second->steps.end(),
                                               [&](const std::string& step) { return waits_for(step, other); });
}

void RepositoryState::needs(const NeedsPtr& needs) {
  const auto refuse = [&](const std::string& text) {
    needs->error =
        Error(Code::kInvalidArgument, fmt::format("model '{}': ensemble_scheduling: {}", needs->model, text));
    self_->send(model(needs->model).actor, over_atom::value, needs);
  };
  for (const std::string& step : needs->steps) {
    if (models_.count(step) == 0 && context_->options.control != ModelControl::kExplicit)
      return refuse(fmt::format("step '{}': there is no such model", step));
    if (waits_for(step, needs->model)) return refuse(fmt::format("step '{}' is an ensemble with this one in it", step));
  }
  asking_[needs->model] = needs;
  const auto left = std::make_shared<std::atomic<size_t>>(needs->steps.size());
  for (const std::string& step : needs->steps) {
    const OperationPtr operation = load_of(step);
    if (context_->options.control != ModelControl::kExplicit || serves(step))
      operation->kind = Operation::Kind::kNothing;
    operation->done = [left, needs, me = caf::actor{self_}](const std::optional<Error>&) {
      if (--*left == 0) caf::anon_send(me, over_atom::value, needs);
    };
    send(operation);
  }
}

void RepositoryState::settled(const NeedsPtr& needs) {
  asking_.erase(needs->model);
  for (const std::string& step : needs->steps) seen_[needs->model][step] = models_[step].changes;
  const auto found = models_.find(needs->model);
  if (found != models_.end()) self_->send(found->second.actor, over_atom::value, needs);
}

std::vector<std::string> RepositoryState::users_of(const std::string& name) const {
  std::vector<std::string> users;
  for (const auto& [user, model] : models_)
    if (model.steps.count(name) > 0) users.push_back(user);
  return users;
}

// An ensemble is made of its steps' executors, so it is made anew when they are.
void RepositoryState::refresh(const std::string& name) {
  if (stopping_) return;
  const OperationPtr operation = load_of(name);
  operation->force = true;
  send(operation);
}

void RepositoryState::news(const ModelNews& news) {
  const auto found = models_.find(news.model);
  if (found == models_.end()) return;
  Model& model = found->second;
  ++model.done;
  model.steps = news.steps;
  if (news.changed) {
    ++model.changes;
    for (const std::string& user : users_of(news.model)) {
      if (seen_[user][news.model] == model.changes || models_[user].asked > models_[user].done) continue;
      refresh(user);
    }
  }
  if (!news.steps.empty() && news.changed) {
    auto& then = seen_[news.model];
    if (std::any_of(news.steps.begin(), news.steps.end(), [&](const std::string& step) {
          return models_.count(step) > 0 && then[step] != models_[step].changes;
        }))
      refresh(news.model);
  }
  if (!news.empty || model.asked > model.done) return;
  const caf::actor actor = model.actor;
  models_.erase(found);
  seen_.erase(news.model);
  context_->table.remove(news.model);
  self_->send_exit(actor, caf::exit_reason::user_shutdown);
}

void RepositoryState::begin_unload(const std::set<std::string>& names, const Done& done) {
  const auto left = std::make_shared<std::atomic<size_t>>(names.size());
  for (const std::string& name : names) {
    const auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::kUnload;
    operation->model = name;
    operation->done = [left, done](const std::optional<Error>&) {
      if (--*left == 0 && done) done(std::nullopt);
    };
    send(operation);
  }
}

// With dependents go those that use the model, and those that only it uses.
void RepositoryState::unload(const UnloadPtr& request) {
  const auto fail = [&](Code code, const std::string& text) {
    request->done(Error(code, fmt::format("unload: model '{}': {}", request->model, text)));
  };
  if (models_.count(request->model) == 0) return fail(Code::kNotFound, "it is not loaded");
  std::set<std::string> going = {request->model};
  const std::vector<std::string> users = users_of(request->model);
  if (!users.empty() && !request->dependents)
    return fail(Code::kInvalidArgument,
                fmt::format("the ensemble '{}' uses it; unload that too, with unload_dependents", users.front()));
  if (request->dependents) {
    std::vector<std::string> open = {request->model};
    while (!open.empty()) {
      const std::string name = open.back();
      open.pop_back();
      std::vector<std::string> more = users_of(name);
      for (const std::string& step : models_[name].steps) {
        const std::vector<std::string> of_step = users_of(step);
        if (std::all_of(of_step.begin(), of_step.end(), [&](const auto& user) { return going.count(user) > 0; }))
          more.push_back(step);
      }
      for (const std::string& other : more)
        if (models_.count(other) > 0 && going.insert(other).second) open.push_back(other);
    }
  }
  begin_unload(going, request->done);
}

void RepositoryState::look() {
  if (std::exchange(scanning_, true)) return;
  run_detached(self_, [context = context_, first = started_ != nullptr] { return scan(context, first); });
}

void RepositoryState::scanned(const ScanPtr& result) {
  scanning_ = false;
  if (stopping_) return;
  if (result->error) log_error(result->error->what());
  std::set<std::string> names;
  for (const Scan::Found& found : result->models) names.insert(found.name);
  const bool first = started_ != nullptr;
  if (first) {
    start_with(names);
  } else if (!result->error) {
    for (const std::string& name : names) model(name);
    for (const Scan::Found& found : result->models) {
      Model& model = models_[found.name];
      if (model.asked > model.done) continue;  // it will be looked at again
      const OperationPtr operation = load_of(found.name);
      operation->read = [found] {
        if (found.error) throw *found.error;
        return *found.draft;
      };
      send(operation);
    }
    for (const auto& [name, model] : models_) {
      if (names.count(name) > 0 || model.asked > model.done) continue;
      const auto operation = std::make_shared<Operation>();
      operation->kind = Operation::Kind::kUnload;
      operation->model = name;
      operation->forget = true;
      send(operation);
    }
  }
  if (context_->options.control == ModelControl::kPoll)
    self_->delayed_send(self_, context_->options.poll, poll_atom::value);
}

void RepositoryState::stop() {
  if (std::exchange(stopping_, true)) return;
  if (started_) std::exchange(started_, nullptr)({});
  std::set<std::string> names;
  for (const auto& [name, model] : models_) names.insert(name);
  const auto quit = [me = caf::actor{self_}](const std::optional<Error>&) {
    caf::anon_send_exit(me, caf::exit_reason::user_shutdown);
  };
  if (names.empty()) return quit(std::nullopt);
  begin_unload(names, quit);
}

// A model's actor that ended by itself begins anew; its versions answer until then.
bool RepositoryState::ended(const caf::actor_addr& who, const caf::error& reason) {
  for (auto& [name, model] : models_) {
    if (model.actor == nullptr || model.actor.address() != who) continue;
    log_error(fmt::format("model '{}': its actor is started again after: {}", name, self_->system().render(reason)));
    model.actor = nullptr;
    model.asked = model.done = 0;
    asking_.erase(name);
    if (!stopping_) send(load_of(name));
    return true;
  }
  return who != self_->address();  // of one that was let go of
}

}  // namespace

caf::actor spawn_repository(const ContextPtr& context, Started started) {
  const auto behavior = [](RepositoryState::Self* self, const ContextPtr& context,
                           const Started& started) -> caf::behavior {
    RepositoryState& state = self->state;
    state.begin(self, context, started);
    return {
        [&state](const OperationPtr& operation) { state.add(operation); },
        [&state](const UnloadPtr& request) { state.unload(request); },
        [&state](const NeedsPtr& needs) { state.needs(needs); },
        [&state](over_atom, const NeedsPtr& needs) { state.settled(needs); },
        [&state](over_atom, const ScanPtr& scan) { state.scanned(scan); },
        [&state](const ModelNews& news) { state.news(news); },
        [&state](poll_atom) { state.look(); },
        [&state](stop_atom) { state.stop(); },
    };
  };
  return context->actors.spawn(behavior, context, std::move(started));
}

caf::error to_caf(const Error& error) {
  return {static_cast<uint8_t>(static_cast<int>(error.code()) + 1), caf::atom("serving"),
          caf::make_message(std::string(error.what()))};
}

Error from_caf(const std::string& where, const caf::error& error) {
  if (error.category() == caf::atom("serving") && error.context().match_elements<std::string>())
    return {static_cast<Code>(error.code() - 1), error.context().get_as<std::string>(0)};
  return {Code::kInternal, where + ": its actor ended"};
}

}  // namespace sluice::serving
