#include "tools/plan_viz/served_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <filesystem>

#include "base/files/file.h"
#include "plan/family/family.h"
#include "plan/json/json.h"
#include "plan/verify.h"

namespace sluice::plan_viz {

namespace {

namespace fs = std::filesystem;
namespace js = boost::json;

std::string text_of(const js::value& value) { return std::string(value.as_string()); }

std::vector<std::string> texts_of(const js::value& value) {
  std::vector<std::string> texts;
  for (const js::value& one : value.as_array()) texts.push_back(text_of(one));
  return texts;
}

plan::Plan plan_of(const fs::path& folder) {
  plan::Plan plan = plan::load_plan(folder.string());
  plan::VerifyReport structure;
  plan::verify_structure(plan, structure);
  if (structure.ok()) plan::verify_sizes(plan, structure);
  SLUICE_CHECK(structure.ok(), "{}: {}: {}; `plan-viz verify` lists all faults", folder.string(),
               structure.problems[0].concern, structure.problems[0].text);
  return plan;
}

std::vector<ServedModel::Member> members_of(const fs::path& bundle) {
  const fs::path file = bundle / "family.json";
  if (!fs::exists(file)) return {{"", plan_of(bundle)}};
  const plan::Family family = plan::parse_family(read_file(file.string()), file.string());
  std::vector<ServedModel::Member> members;
  for (size_t m = 0; m < family.members.size(); ++m) {
    std::string sizes;
    for (size_t d = 0; d < family.dims.size(); ++d)
      sizes += fmt::format("{}{} {}", d > 0 ? ", " : "", family.dims[d].name, family.members[m][d]);
    members.push_back({std::move(sizes), plan_of(bundle / "members" / std::to_string(m))});
  }
  return members;
}

ServedModel model_of(const js::object& given) {
  ServedModel model;
  model.name = text_of(given.at("name"));
  model.version = text_of(given.at("version"));
  model.bundle = text_of(given.at("bundle"));
  model.inputs = texts_of(given.at("inputs"));
  model.outputs = texts_of(given.at("outputs"));
  model.steps = texts_of(given.at("steps"));
  model.sequences = text_of(given.at("sequences"));
  model.instances = given.at("instances").to_number<int>();
  for (const js::value& queue : given.at("queues").as_array())
    model.queues.push_back({queue.at("priority").to_number<uint64_t>(), queue.at("places").to_number<uint64_t>(),
                            queue.at("timeout_us").to_number<uint64_t>(), queue.at("delays").as_bool()});
  const js::object& batcher = given.at("batcher").as_object();
  model.merges = batcher.at("merges").as_bool();
  model.most_rows = batcher.at("most_rows").to_number<int64_t>();
  for (const js::value& size : batcher.at("preferred").as_array()) model.preferred.push_back(size.to_number<int64_t>());
  model.delay_us = batcher.at("delay_us").to_number<uint64_t>();
  model.ordered = batcher.at("ordered").as_bool();
  return model;
}

}  // namespace

std::vector<ServedModel> served_models(std::string_view text, const std::string& file, const std::string& name) {
  const js::value document = plan::read_document(text, file, "models of a server");
  std::vector<ServedModel> models;
  std::vector<std::string> known;
  try {
    for (const js::value& given : document.at("models").as_array()) {
      ServedModel model = model_of(given.as_object());
      known.push_back(model.name);
      if (name.empty() || model.name == name) models.push_back(std::move(model));
    }
  } catch (const std::exception&) {  // of the reader's: a key that is missing, a value of another kind
    fail(ErrorKind::kValue,
         "{}: it has not the form of models of a server; give what `sluice-serve check --json` prints", file);
  }
  SLUICE_CHECK(!models.empty(), "{}: {}; it has {}", file,
               name.empty() ? "it has no model that can be served" : "no model '" + name + "'",
               known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
  for (ServedModel& model : models)
    if (!model.bundle.empty()) model.members = members_of(model.bundle);
  return models;
}

}  // namespace sluice::plan_viz
