#include "serving/repository/model_actor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "serving/core/log.h"

namespace sluice::serving {

void ModelState::begin(Self* actor, ContextPtr with, std::string called, caf::actor parent) {
  self_ = actor;
  context_ = std::move(with);
  name_ = std::move(called);
  repository_ = std::move(parent);
  self_->set_exit_handler([this](const caf::exit_msg& message) {
    if (message.source == repository_.address() || !ended(message.source, message.reason)) self_->quit(message.reason);
  });
}

void ModelState::add(const OperationPtr& operation) {
  waiting_.push_back(operation);
  if (!now_) next();
}

void ModelState::next() {
  if (std::exchange(in_next_, true)) return;
  while (!now_ && !waiting_.empty()) {
    now_ = Now{};
    now_->operation = waiting_.front();
    waiting_.pop_front();
    if (context_->stopping && now_->operation->kind == Operation::Kind::kLoad) {
      now_->errors.emplace_back(Code::kUnavailable, "load: the server is shutting down");
      end();
      continue;
    }
    switch (now_->operation->kind) {
      case Operation::Kind::kNothing: end(); break;
      case Operation::Kind::kUnload: unload(); break;
      case Operation::Kind::kLoad: read(); break;
    }
  }
  in_next_ = false;
}

void ModelState::read() {
  publish();
  run_detached(self_, [operation = now_->operation] {
    const auto result = std::make_shared<ReadResult>();
    try {
      result->draft = std::make_shared<const Draft>(operation->read());
    } catch (const Error& error) {
      result->error = error;
    } catch (const std::exception& error) {
      result->error = Error(Code::kInternal, fmt::format("model '{}': {}", operation->model, error.what()));
    }
    return result;
  });
}

void ModelState::has_read(const ReadResultPtr& result) {
  if (result->error) {
    trouble_ = result->error->what();
    log_error(trouble_);
    now_->errors.push_back(*result->error);
    end();
    return;
  }
  trouble_.clear();
  now_->draft = result->draft;
  labels_ = now_->draft->labels;
  std::erase_if(failed_, [this](const auto& entry) {
    const auto& versions = now_->draft->versions;
    return std::none_of(versions.begin(), versions.end(),
                        [&](const VersionFiles& files) { return files.number == entry.first; });
  });
  const auto needs = std::make_shared<Needs>();
  needs->model = name_;
  for (const auto& step : now_->draft->config.ensemble_scheduling().step()) needs->steps.insert(step.model_name());
  if (needs->steps.empty()) return walk();
  self_->send(repository_, needs);
}

void ModelState::has_needs(const NeedsPtr& needs) {
  if (!now_) return;
  if (needs->error) {
    trouble_ = needs->error->what();
    log_error(trouble_);
    now_->errors.push_back(*needs->error);
    return end();
  }
  now_->steps = needs->steps;
  walk();
}

// Version by version, newest first, until as many are served as may be. A version that cannot be loaded does not count.
void ModelState::walk() {
  while (true) {
    if (!now_->again.empty()) {
      const LoadPtr load = now_->again.front();
      now_->again.pop_front();
      if (live_.count(load->files.number) == 0) return start(load);
      continue;
    }
    if (context_->stopping || now_->next >= now_->draft->versions.size() || now_->have >= now_->draft->most)
      return finish();
    const auto load = std::make_shared<Load>();
    load->context = context_;
    load->draft = now_->draft;
    load->files = now_->draft->versions[now_->next++];
    if (!keeps(*load)) return start(load);
  }
}

// Whether there is nothing to do for this version: it is served as its files are, or cannot be.
bool ModelState::keeps(const Load& load) {
  const int64_t number = load.files.number;
  const auto served = live_.find(number);
  const bool same = served != live_.end() && served->second.load->print() == load.print();
  const bool fresh = now_->loaded.count(number) > 0;
  // Behind a version that failed nothing is loaded anew: what runs is not to be touched then.
  if (same && (fresh || !now_->operation->force || !now_->errors.empty())) {
    failed_.erase(number);
    keep(number);
    return true;
  }
  const auto failure = failed_.find(number);
  if (failure == failed_.end() || failure->second.print != load.print() || now_->operation->force) return false;
  if (served != live_.end()) keep(number);
  return true;
}

void ModelState::keep(int64_t number) {
  if (now_->kept.insert(number).second) ++now_->have;
}

void ModelState::start(const LoadPtr& load) {
  load->step = [context = std::weak_ptr(context_)](const std::string& model, int64_t version) {
    const ContextPtr alive = context.lock();
    if (alive == nullptr) throw Error(Code::kUnavailable, "the server is shutting down");
    const ServedPtr served = alive->table.find(model, version < 0 ? "" : std::to_string(version));
    return ExecutorSpec::Step{served->executor, served->bundle, served->config};
  };
  loading_ = load;
  loading_since_ = std::chrono::steady_clock::now();
  loader_ = spawn_version(self_, load);
  publish();
}

// Those that go when `load` is there; to let go of them before makes room.
std::vector<int64_t> ModelState::victims(const Load& load) const {
  std::vector<int64_t> all;
  size_t others = now_->draft->most - now_->have - 1;  // of older versions, that stay
  for (auto it = live_.rbegin(); it != live_.rend(); ++it) {
    const int64_t number = it->first;
    if (now_->kept.count(number) > 0) continue;
    const auto& versions = now_->draft->versions;
    const bool stays = number != load.files.number && others > 0 &&
                       std::any_of(versions.begin(), versions.end(),
                                   [&](const VersionFiles& files) { return files.number == number; });
    if (stays)
      --others;
    else
      all.push_back(number);
  }
  return all;
}

void ModelState::prepared(const LoadPtr& load) {
  if (load != loading_) return;
  std::vector<int64_t> going = victims(*load);
  uint64_t freed = 0;
  for (const int64_t number : going) freed += live_.at(number).load->bytes;
  if (!context_->ledger.fits(load->bytes, freed)) going.clear();  // they would go for nothing
  std::optional<Error> full;
  if (going.empty() || context_->options.availability == Availability::kPreserve) {
    try {
      load->share = context_->ledger.take(load->where(), load->bytes);
      self_->send(loader_, go_atom::value);
      return;
    } catch (const Error& error) {
      full = error;
    }
  }
  if (going.empty()) {
    const caf::actor stopped = std::exchange(loader_, nullptr);
    self_->send_exit(stopped, caf::exit_reason::user_shutdown);
    return load_failed(*full, true);
  }
  log_info(fmt::format("{}: {} first, to make room", load->where(),
                       going.size() == 1 ? fmt::format("version {} goes", going[0]) : "the old versions go"));
  for (const int64_t number : going) {
    now_->again.push_back(copy_of(*live_.at(number).load));
    retire(number);
  }
  now_->waits_for_room = true;
  publish();
  room();
}

LoadPtr ModelState::copy_of(const Load& load) {
  const auto copy = std::make_shared<Load>();
  copy->context = load.context;
  copy->draft = load.draft;
  copy->files = load.files;
  copy->again = true;
  return copy;
}

void ModelState::room() {
  if (!now_ || !now_->waits_for_room || !leaving_.empty()) return;
  now_->waits_for_room = false;
  prepared(loading_);
}

void ModelState::up(const LoadPtr& load) {
  if (load != loading_) return;
  const int64_t number = load->files.number;
  const caf::actor actor = std::exchange(loader_, nullptr);
  loading_ = nullptr;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - loading_since_;
  log_info(fmt::format("{}: ready after {:.2f} s, with {} bytes: {}", load->where(), took.count(), load->bytes,
                       load->served->config.ShortDebugString()));
  if (live_.count(number) > 0) retire(number);
  live_[number] = {std::exchange(load->served, nullptr), load, actor};
  failed_.erase(number);
  if (!load->again) now_->again.clear();
  now_->loaded.insert(number);
  now_->changed = true;
  keep(number);
  publish();
  walk();
}

// For want of memory it is tried again with the next look; otherwise, when its files have changed.
void ModelState::load_failed(const Error& error, bool full) {
  const LoadPtr load = std::exchange(loading_, nullptr);
  loader_ = nullptr;
  const int64_t number = load->files.number;
  const auto known = failed_.find(number);
  if (known == failed_.end() || known->second.reason != error.what()) log_error(error.what());
  if (!load->again) failed_[number] = {full ? "" : load->print(), error.what()};
  now_->errors.push_back(error);
  if (live_.count(number) > 0) keep(number);
  publish();
  walk();
}

// It takes no more requests, and ends when those under way are answered.
void ModelState::retire(int64_t number) {
  const auto node = live_.extract(number);
  leaving_.emplace(node.mapped().actor.address(), number);
  now_->changed = true;
  // The table lets go of it with the next publish(), or has already.
}

void ModelState::finish() {
  if (now_->have == 0 && !now_->errors.empty())
    for (const auto& [number, version] : live_) now_->kept.insert(number);
  std::vector<int64_t> going;
  for (const auto& [number, version] : live_)
    if (now_->kept.count(number) == 0) going.push_back(number);
  for (const int64_t number : going) retire(number);
  end();
}

void ModelState::unload() {
  away_ = true;
  while (!live_.empty()) retire(live_.begin()->first);
  trouble_.clear();
  failed_.clear();
  publish();
  unloaded();
}

void ModelState::unloaded() {
  if (now_ && now_->operation->kind == Operation::Kind::kUnload && leaving_.empty()) end();
}

void ModelState::end() {
  const Now done = std::move(*now_);
  now_.reset();
  if (done.operation->kind == Operation::Kind::kLoad) away_ = false;
  if (!done.steps.empty()) steps_ = done.steps;
  if (live_.empty()) steps_.clear();
  publish();
  const bool unknown =
      !done.errors.empty() && done.errors.front().code() == Code::kNotFound && live_.empty() && done.draft == nullptr;
  const bool empty = live_.empty() && (done.operation->forget || (unknown && !done.operation->stays));
  self_->send(repository_, ModelNews{name_, steps_, done.changed, empty});
  done.operation->finish(done.errors.empty() ? std::nullopt : std::optional(done.errors.front()));
  next();
}

// Handles the end of a child; false when it is none.
bool ModelState::ended(const caf::actor_addr& who, const caf::error& reason) {
  if (loader_ != nullptr && loader_.address() == who) {
    load_failed(from_caf(loading_->where(), reason));
    return true;
  }
  const auto left = leaving_.find(who);
  if (left != leaving_.end()) {
    log_info(fmt::format("{}: unloaded", serving::who(name_, left->second)));
    leaving_.erase(left);
    publish();
    room();
    unloaded();
    return true;
  }
  for (auto& [number, version] : live_) {
    if (version.actor.address() != who) continue;
    lost(number, from_caf(version.load->where(), reason));
    return true;
  }
  return who != self_->address();  // of one that was let go of before it was loaded
}

// A version that ended by itself is loaded again, but not for ever.
void ModelState::lost(int64_t number, const Error& error) {
  constexpr int kMostRestarts = 3;
  log_error(error.what());
  const LoadPtr load = live_.at(number).load;
  live_.erase(number);
  const bool again = restarts_++ < kMostRestarts;
  if (!again) failed_[number] = {load->print(), error.what()};
  publish();
  if (!again) return;
  const auto operation = std::make_shared<Operation>();
  operation->model = name_;
  operation->read = [draft = load->draft] { return *draft; };
  add(operation);
}

void ModelState::publish() {
  ModelView view;
  for (auto it = live_.rbegin(); it != live_.rend(); ++it) view.served.push_back(it->second.served);
  view.labels = labels_;
  for (const auto& [actor, number] : leaving_) view.versions[number] = {"UNLOADING", ""};
  for (const auto& [number, failure] : failed_) view.versions[number] = {"UNAVAILABLE", failure.reason};
  for (const auto& [number, version] : live_) {
    const auto failure = failed_.find(number);
    view.versions[number] = {"READY", failure != failed_.end() ? "kept as it was: " + failure->second.reason
                                      : trouble_.empty()       ? ""
                                                               : "kept as it was: " + trouble_};
  }
  if (loading_ != nullptr && live_.count(loading_->files.number) == 0)
    view.versions[loading_->files.number] = {"LOADING", ""};
  if (view.versions.empty()) {
    view.state = now_ && now_->operation->kind == Operation::Kind::kLoad ? "LOADING" : "UNAVAILABLE";
    view.reason = trouble_;
  }
  if (away_) {
    for (const int64_t number : were_) view.versions.try_emplace(number, VersionState{"UNAVAILABLE", "unloaded"});
    if (!view.versions.empty()) view.state.clear();
  } else {
    were_.clear();
    for (const auto& [number, version] : live_) were_.insert(number);
  }
  context_->table.set(name_, std::move(view));
}

caf::actor spawn_model(caf::event_based_actor* repository, const ContextPtr& context, const std::string& name) {
  const auto behavior = [](ModelState::Self* self, const ContextPtr& context, const std::string& name,
                           const caf::actor& parent) -> caf::behavior {
    ModelState& state = self->state;
    state.begin(self, context, name, parent);
    return {
        [&state](const OperationPtr& operation) { state.add(operation); },
        [&state](over_atom, const ReadResultPtr& result) { state.has_read(result); },
        [&state](over_atom, const NeedsPtr& needs) { state.has_needs(needs); },
        [&state](prepared_atom, const LoadPtr& load) { state.prepared(load); },
        [&state](up_atom, const LoadPtr& load) { state.up(load); },
    };
  };
  return repository->spawn<caf::linked>(behavior, context, name, caf::actor{repository});
}

}  // namespace sluice::serving
