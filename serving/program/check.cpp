#include "serving/program/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "serving/core/json_string.h"
#include "serving/core/loaded.h"
#include "serving/execution/scheduling.h"
#include "serving/repository/catalog.h"
#include "serving/repository/context.h"
#include "serving/repository/names.h"

namespace sluice::serving {

namespace {

using Row = std::array<std::string, 6>;

std::string bytes_text(uint64_t bytes) {
  return bytes < 1u << 20u ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024)
                           : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

template <class Ports>
std::vector<std::string> port_texts(const Ports& ports, int32_t max_batch) {
  std::vector<std::string> texts;
  for (const auto& port : ports) {
    std::vector<std::string> dims;
    if (max_batch > 0) dims.push_back(fmt::format("<={}", max_batch));
    for (const int64_t dim : port.dims()) dims.push_back(dim < 0 ? "any" : std::to_string(dim));
    texts.push_back(fmt::format("{} {}[{}]", port.name(), datatype_name(port.data_type()), fmt::join(dims, ",")));
  }
  return texts;
}

std::string texts_json(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(json_string(text));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::string sequences_text(const inference::ModelConfig& config) {
  const auto& sequences = config.sequence_batching();
  if (!config.has_sequence_batching()) return "";
  if (!sequences.has_oldest()) return "a sequence keeps its row of an instance";
  return fmt::format("of {} sequences at most, the oldest first", sequences.oldest().max_candidate_sequences());
}

std::string model_json(const inference::ModelConfig& config, const std::string& version, const std::string& bundle,
                       uint64_t bytes, const Scheduling& scheduling) {
  std::vector<std::string> steps, queues;
  for (const auto& step : config.ensemble_scheduling().step()) steps.push_back(step.model_name());
  for (const Scheduling::Queue& queue : scheduling.queues)
    queues.push_back(fmt::format("{{\"priority\": {}, \"places\": {}, \"timeout_us\": {}, \"delays\": {}}}",
                                 queue.priority, queue.places, queue.timeout_us, queue.delays));
  std::error_code none;  // bundles are known by folders that are open, whose numbers mean nothing elsewhere
  const std::filesystem::path path = bundle.empty() ? "" : std::filesystem::canonical(bundle, none);
  return fmt::format(
      "{{\"name\": {}, \"version\": {}, \"bundle\": {}, \"memory_bytes\": {}, \"instances\": {},\n"
      "   \"inputs\": {}, \"outputs\": {}, \"steps\": {}, \"sequences\": {}, \"queues\": [{}],\n"
      "   \"batcher\": {{\"merges\": {}, \"most_rows\": {}, \"preferred\": [{}], \"delay_us\": {}, \"ordered\": {}}}}}",
      json_string(config.name()), json_string(version), json_string(path.string()), bytes, instances_of(config),
      texts_json(port_texts(config.input(), config.max_batch_size())),
      texts_json(port_texts(config.output(), config.max_batch_size())), texts_json(steps),
      json_string(sequences_text(config)), fmt::join(queues, ", "), scheduling.merges, scheduling.most_rows,
      fmt::join(scheduling.preferred, ", "), scheduling.delay_us, scheduling.ordered);
}

class Check {
 public:
  Check(const CheckArguments& args, ServerOptions options)
      : args_(args), options_(std::move(options)), catalog_(options_) {}

  int run() {
    names_ = args_.models.empty() ? catalog_.names() : args_.models;
    for (const std::string& name : names_) {
      try {
        model(name);
      } catch (const std::exception& e) {
        problems_.push_back(failure_of(name, e.what()));
      }
    }
    if (args_.models.empty()) strange_names();
    if (names_.empty())
      problems_.emplace_back("the repository has no models; a model is a folder with versions, as in digits/1/model");
    if (!args_.json) print();
    if (args_.memory_limit > 0 && bytes_ > args_.memory_limit)
      problems_.push_back(
          fmt::format("all models together need {} bytes; --memory-limit is {}", bytes_, args_.memory_limit));
    if (args_.json)
      std::printf("{\"models\": [%s], \"problems\": %s}\n", fmt::format("\n  {}", fmt::join(models_, ",\n  ")).c_str(),
                  texts_json(problems_).c_str());
    else
      for (const std::string& problem : problems_) std::printf("problem: %s\n", problem.c_str());
    return problems_.empty() ? 0 : 1;
  }

 private:
  // Folders that the server passes over, since no client could name them.
  void strange_names() {
    for (const std::string& repository : args_.repositories)
      for (const Folder::Entry& entry : Folder::open(repository, "repository").list())
        if (entry.kind == Folder::Kind::kFolder && !entry.name.starts_with('.') && !is_model_name(entry.name))
          problems_.push_back(
              fmt::format("folder '{}': it is no model's name; one has letters, digits, '.', '_' and '-', "
                          "and begins with a letter or digit",
                          shown(entry.name)));
  }

  void model(const std::string& name) {
    const Draft draft = read_draft(catalog_.find(name));
    size_t good = 0;
    for (const VersionFiles& files : draft.versions) {
      if (good == draft.most) break;
      if (!files.error.empty()) {
        problems_.push_back(failure_of(name, files.error));
        continue;
      }
      try {
        version(draft, files);
        ++good;
      } catch (const std::exception& e) {
        problems_.push_back(failure_of(name, e.what()));
      }
    }
    if (draft.versions.empty())
      problems_.push_back(
          fmt::format("model '{}': no version may be served; a version is a folder with a number for its "
                      "name, and 'model' in it, that the version_policy allows",
                      name));
  }

  void version(const Draft& draft, const VersionFiles& files) {
    Prepared prepared = prepare(draft, files, options_.auto_config);
    const inference::ModelConfig& config = prepared.spec.config;
    for (const auto& step : config.ensemble_scheduling().step()) {
      const auto known = catalog_.names();
      if (std::find(known.begin(), known.end(), step.model_name()) == known.end())
        throw Error(Code::kInvalidArgument, fmt::format("{}: its step '{}' is no model of the repository",
                                                        who(draft.source.name, files.number), step.model_name()));
    }
    const bool ensemble = prepared.spec.bundle.empty();
    std::vector<Prepared> held;  // whose folders the steps are read from
    prepared.spec.step = [&](const std::string& model, int64_t number) { return step_of(model, number, held); };
    const uint64_t bytes = ensemble ? 0 : ledger_of(prepared.spec);
    use(prepared.spec);
    const Scheduling scheduling = scheduling_of(config, options_.max_queue_size);
    bytes_ += bytes;
    models_.push_back(model_json(config, prepared.spec.version, prepared.spec.bundle, bytes, scheduling));
    rows_.push_back({config.name(), prepared.spec.version,
                     fmt::format("{}", fmt::join(port_texts(config.input(), config.max_batch_size()), ", ")),
                     fmt::format("{}", fmt::join(port_texts(config.output(), config.max_batch_size()), ", ")),
                     std::to_string(instances_of(config)), ensemble ? "of its steps" : bytes_text(bytes)});
  }

  // The version that a step of an ensemble means; the newest that can be served.
  ExecutorSpec::Step step_of(const std::string& model, int64_t number, std::vector<Prepared>& held) const {
    const Draft draft = read_draft(catalog_.find(model));
    for (const VersionFiles& files : draft.versions) {
      if (!files.error.empty() || (number >= 0 && files.number != number)) continue;
      held.push_back(prepare(draft, files, options_.auto_config));
      return {nullptr, held.back().spec.bundle, held.back().spec.config};
    }
    throw Error(Code::kNotFound, number < 0 ? fmt::format("model '{}': it has no version", model)
                                            : who(model, number) + ": it is not there");
  }

  // Does as the server would: looks for what it refuses, or loads it, warm-up included.
  void use(const ExecutorSpec& spec) {
    if (!engine_) {
      engine_ = std::make_unique<api::Engine>();
      actors_ = std::make_unique<ActorHome>();
      shared_ = make_shared_resources(options_);
    }
    const Machine machine{*engine_, actors_->system(), options_, shared_};
    ActorHome::on_own_thread([&] {  // which makes actors
      if (!args_.load) return check_executor(machine, spec);
      const auto executor = make_executor(machine, spec);
      executor->drain(std::chrono::seconds(10));
    });
  }

  void print() const {
    const Row head = {"model", "version", "inputs", "outputs", "instances", "memory"};
    std::array<size_t, 6> widths{};
    for (size_t i = 0; i < head.size(); ++i) {
      widths[i] = head[i].size();
      for (const Row& row : rows_) widths[i] = std::max(widths[i], row[i].size());
    }
    const auto line = [&](const Row& row) {
      std::string text;
      for (size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
      std::printf("%s%s\n", text.c_str(), row.back().c_str());
    };
    if (rows_.empty()) return;
    line(head);
    for (const Row& row : rows_) line(row);
    std::printf("%zu version%s of %zu model%s, %s in all\n", rows_.size(), rows_.size() == 1 ? "" : "s", names_.size(),
                names_.size() == 1 ? "" : "s", bytes_text(bytes_).c_str());
  }

  const CheckArguments& args_;
  const ServerOptions options_;
  const Catalog catalog_;
  std::vector<std::string> names_, problems_, models_;
  std::vector<Row> rows_;
  uint64_t bytes_ = 0;
  std::shared_ptr<SharedResources> shared_;
  std::unique_ptr<api::Engine> engine_;
  std::unique_ptr<ActorHome> actors_;  // ends first
};

}  // namespace

int check(const CheckArguments& args) try {
  ServerOptions options;
  options.repositories = args.repositories;
  options.follow_links = args.follow_links;
  options.response_cache_bytes = args.response_cache_bytes;
  options.rate_limits = args.rate_limits;
  return Check(args, std::move(options)).run();
} catch (const std::exception& e) {
  std::fprintf(stderr, "sluice-serve: %s\n", e.what());
  return 1;
}

}  // namespace sluice::serving
