#include "serving/repository/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "serving/core/error.h"
#include "serving/core/log.h"
#include "serving/execution/errors.h"
#include "serving/execution/ports.h"
#include "serving/execution/ragged.h"
#include "serving/repository/config.h"
#include "serving/repository/model_list.h"
#include "serving/repository/names.h"
#include "sluice/plan.h"

namespace sluice::serving {

namespace {

constexpr const char* kConfig = "config.pbtxt";

bool is_bundle(const Folder& folder) {
  const auto entries = folder.list();
  return std::any_of(entries.begin(), entries.end(), [](const Folder::Entry& entry) {
    return entry.kind == Folder::Kind::kFile && (entry.name == "plan.json" || entry.name == "family.json");
  });
}

// The folder that sluice.save wrote.
Folder bundle_of(const Folder& version, const std::string& file, const std::string& where) {
  const std::string name = file.empty() ? "model" : file;
  const auto named = version.find(name);
  if (named && is_bundle(*named)) return *named;
  if (file.empty() && is_bundle(version)) return version;
  const auto entries = version.list();
  if (std::any_of(entries.begin(), entries.end(),
                  [&](const Folder::Entry& entry) { return entry.kind == Folder::Kind::kFile && entry.name == name; }))
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: '{}' is a file; models are served from folders: unpack an archive of a bundle there "
                            "(mkdir folder, then tar -xf archive -C folder)",
                            where, name));
  if (!file.empty())
    throw Error(Code::kInvalidArgument, fmt::format("{}: default_model_filename '{}': there is no bundle of this name; "
                                                    "it is a folder that sluice.save wrote",
                                                    where, file));
  throw Error(Code::kInvalidArgument, fmt::format("{}: no bundle in its folder; save one there, as '{}/model'", where,
                                                  where.substr(where.rfind(' ') + 1)));
}

[[noreturn]] void rethrow_with(const std::string& where) {
  try {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    throw Error(error.code(), text.rfind("model '", 0) == 0 ? text : where + ": " + text);
  }
}

}  // namespace

std::string who(const std::string& model, int64_t version) {
  return fmt::format("model '{}' version {}", model, version);
}

// The list is read whenever it is needed; now, to tell at once what is wrong with it.
Catalog::Catalog(const ServerOptions& options) : options_(options) {
  for (const std::string& path : options.repositories)
    repositories_.push_back(Folder::open(path, "model repository", links()));
  read_model_list(options.model_config_file);
}

std::vector<std::string> Catalog::names() const {
  std::set<std::string> names;
  for (const Folder& repository : repositories_) {
    for (const Folder::Entry& entry : repository.list()) {
      if (entry.name.front() == '.' || entry.kind == Folder::Kind::kFile) continue;
      if (is_model_name(entry.name))
        names.insert(entry.name);
      else
        log_warning(fmt::format("model repository: '{}' is no name for a model; left out", shown(entry.name)));
    }
  }
  for (const ListedModel& model : read_model_list(options_.model_config_file)) names.insert(model.name);
  return {names.begin(), names.end()};
}

Source Catalog::find(const std::string& name) const {
  check_model_name("model repository", name);
  std::vector<Source> found;
  try {
    for (const Folder& repository : repositories_)
      if (auto folder = repository.find(name)) found.push_back({name, std::move(*folder)});
  } catch (const Error&) {
    rethrow_with(fmt::format("model '{}'", name));
  }
  for (const ListedModel& model : read_model_list(options_.model_config_file)) {
    if (model.name != name) continue;
    Source source{name, Folder::open(model.base_path, fmt::format("model '{}': base_path", name), links())};
    source.policy = model.policy;
    source.labels = model.labels;
    found.push_back(std::move(source));
  }
  if (found.empty()) throw Error(Code::kNotFound, fmt::format("model '{}': it is in no model repository", name));
  if (found.size() > 1)
    throw Error(Code::kInvalidArgument,
                fmt::format("model '{}': {} folders have this name; it must be in one repository", name, found.size()));
  return std::move(found.front());
}

namespace {

VersionFiles files_of(const Folder& folder, int64_t number) {
  VersionFiles files;
  files.number = number;
  try {
    files.folder = folder.find(std::to_string(number));
    if (!files.folder) throw Error(Code::kNotFound, "the model has no folder of this name");
    files.fingerprint = files.folder->fingerprint();
  } catch (const Error& error) {
    files.error = error.what();
    files.fingerprint = "broken: " + files.error;
  }
  return files;
}

void choose_versions(Draft& draft, std::vector<int64_t> there) {
  const inference::ModelVersionPolicy& policy = draft.config.version_policy();
  draft.most = policy.has_latest() ? policy.latest().num_versions() : SIZE_MAX;
  if (policy.has_specific()) there.assign(policy.specific().versions().begin(), policy.specific().versions().end());
  std::sort(there.rbegin(), there.rend());
  there.erase(std::unique(there.begin(), there.end()), there.end());
  for (const int64_t number : there) draft.versions.push_back(files_of(draft.source.folder, number));
}

}  // namespace

Draft read_draft(Source source) {
  Draft draft{std::move(source), {}, {}, {}, 1, {}};
  const Source& of = draft.source;
  const std::string here = fmt::format("model '{}'", of.name);
  try {
    const std::optional<std::string> text = of.config.empty() ? of.folder.read(kConfig, kLargestConfig) : std::nullopt;
    if (!of.config.empty())
      draft.config = config_from_json(of.name, of.config);
    else if (text)
      draft.config = config_from_text(of.name, *text);
    check_config(of.name, draft.config);
    if (of.policy) {
      *draft.config.mutable_version_policy() = *of.policy;
      check_config(of.name, draft.config);
    }
    draft.labels = labels_of(draft.config);
    for (const auto& [label, version] : of.labels) draft.labels[label] = version;
    const std::vector<Folder::Entry> entries = of.folder.list();
    std::vector<int64_t> there;
    for (const Folder::Entry& entry : entries) {
      const auto version = version_of(entry.name);
      if (!version) continue;
      if (entry.kind != Folder::Kind::kFolder)
        log_warning(fmt::format("{}: '{}' is no folder, so no version; left out", here, entry.name));
      else
        there.push_back(*version);
    }
    choose_versions(draft, std::move(there));
    inference::ModelConfig print = draft.config;  // which versions are served changes none of them
    print.clear_version_policy();
    print.mutable_parameters()->erase("version_labels");
    draft.fingerprint = of.folder.fingerprint([](const std::string& name) {
      return version_of(name).has_value() || name.front() == '.' || name == kConfig;
    }) + print.ShortDebugString();
  } catch (const Error&) {
    rethrow_with(here);
  }
  if (draft.versions.empty())
    throw Error(Code::kInvalidArgument,
                here + ": no version; a version is a folder called by a number, such as '1', with the bundle in it");
  return draft;
}

Prepared prepare(const Draft& draft, const VersionFiles& version, bool auto_config) {
  const std::string here = who(draft.source.name, version.number);
  try {
    if (!version.error.empty()) throw Error(Code::kInvalidArgument, version.error);
    Prepared prepared;
    ExecutorSpec& spec = prepared.spec;
    spec.config = draft.config;
    spec.version = std::to_string(version.number);
    spec.folder = draft.source.folder.path();
    prepared.held.push_back(draft.source.folder);
    if (spec.config.has_ensemble_scheduling()) return prepared;
    prepared.held.push_back(bundle_of(*version.folder, spec.config.default_model_filename(), here));
    spec.bundle = prepared.held.back().path();
    const api::Plan plan = api::Plan::load(spec.bundle);
    complete_config(spec.config, plan.inputs(), plan.outputs(), auto_config);
    if (!spec.config.has_sequence_batching()) {
      const ModelPorts ports(spec.config, plan.inputs(), plan.outputs(), spec.folder,
                             PortRoles{RaggedBatch::made(spec.config, plan.inputs()), {}});
      if (!ports.ragged().empty()) RaggedBatch(spec.config, ports, plan.dims(), plan.members());
    }
    return prepared;
  } catch (const Error&) {
    rethrow_with(here);
  } catch (...) {
    rethrow_as_error(here);
  }
}

}  // namespace sluice::serving
