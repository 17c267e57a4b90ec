#include "tools/plan_viz/served_trace.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <set>

#include "plan/json/json.h"

namespace sluice::plan_viz {

namespace {

namespace js = boost::json;
constexpr uint64_t kMostInstances = 1000;

class Reader {
 public:
  Reader(const std::string& file, const plan::Plan& plan, const ServedOptions& options)
      : file_(file), plan_(plan), options_(options) {
    for (size_t a = 0; a < plan.actors.size(); ++a) actors_[plan.actors[a].name] = static_cast<int>(a);
    for (size_t k = 0; k < plan.kernels.size(); ++k) kernels_[plan.kernels[k].name] = static_cast<int>(k);
  }

  ServedTrace read(std::string_view text) {
    const js::value document = plan::read_document(text, file_, "a trace of requests");
    try {
      for (const js::value& record : document.as_array()) add(record.as_object());
    } catch (const Error&) {
      throw;
    } catch (const std::exception&) {  // of the reader's: a key that is missing, a value of another kind
      wrong("a record has not the form of a trace of requests");
    }
    return join();
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    fail(ErrorKind::kValue, "{}: {}; give a file that sluice-serve --trace-config file=PATH has written", file_, what);
  }

  static uint64_t number(const js::value& value) { return value.to_number<uint64_t>(); }
  static int64_t time(const js::value& value) { return value.to_number<int64_t>(); }

  void add(const js::object& record) {
    const uint64_t id = number(record.at("id"));
    ServedRequest& request = requests_[id];
    request.id = id;
    if (const js::value* model = record.if_contains("model_name")) {
      request.model = model->as_string().c_str();
      request.version = record.at("model_version").as_string().c_str();
      request.request_id = record.at("request_id").as_string().c_str();
    } else if (const js::value* stamps = record.if_contains("timestamps")) {
      for (const js::value& stamp : stamps->as_array())
        request.stamps.emplace_back(stamp.at("name").as_string().c_str(), time(stamp.at("ns")));
    } else if (record.contains("events")) {
      add_step(record);
    }
  }

  void add_step(const js::object& record) {
    const bool several = number(record.at("plans")) > 1;
    ServedStep step;
    for (const js::value& id : record.at("ids").as_array()) step.ids.push_back(number(id));
    const uint64_t instance = number(record.at("instance"));
    if (instance > kMostInstances) wrong(fmt::format("a step of instance {}", instance));
    step.instance = static_cast<int>(instance);
    step.number = number(record.at("number"));
    for (const js::value& event : record.at("events").as_array()) {
      if (several && number(event.at("plan")) != static_cast<uint64_t>(options_.member)) continue;
      if (!add_event(step, event.as_object())) return;  // of another plan
    }
    if (!step.events.empty()) steps_.push_back(std::move(step));
  }

  bool add_event(ServedStep& step, const js::object& event) const {
    static const std::map<std::string_view, ServedEvent::Kind> kinds = {{"firing", ServedEvent::Kind::kFiring},
                                                                        {"kernel", ServedEvent::Kind::kKernel},
                                                                        {"wait", ServedEvent::Kind::kWait},
                                                                        {"left out", ServedEvent::Kind::kLeftOut}};
    ServedEvent made;
    made.kind = kinds.at(std::string_view(event.at("kind").as_string()));
    const auto actor = actors_.find(std::string_view(event.at("actor").as_string()));
    if (actor == actors_.end()) return false;
    made.actor = actor->second;
    if (const js::value* name = event.if_contains("kernel")) {
      const auto kernel = kernels_.find(std::string_view(name->as_string()));
      if (kernel == kernels_.end()) return false;
      made.kernel = kernel->second;
      made.kernels = static_cast<int>(number(event.at("kernels")));
    }
    made.begin_ns = time(event.at("begin_ns"));
    made.end_ns = std::max(made.begin_ns, time(event.at("end_ns")));
    step.events.push_back(made);
    return true;
  }

  ServedTrace join() {
    ServedTrace trace;
    std::map<uint64_t, std::vector<int>> steps_of;
    for (ServedStep& step : steps_) {
      const auto of_model = [&](uint64_t id) {
        const auto request = requests_.find(id);
        return request != requests_.end() && (options_.model.empty() || request->second.model == options_.model);
      };
      if (!std::any_of(step.ids.begin(), step.ids.end(), of_model)) continue;
      for (const uint64_t id : step.ids) steps_of[id].push_back(static_cast<int>(trace.steps.size()));
      trace.steps.push_back(std::move(step));
    }
    std::set<std::string> told;  // models whose requests have steps
    for (const auto& [id, request] : requests_)
      if (steps_of.contains(id)) told.insert(request.model);
    for (auto& [id, request] : requests_) {
      if (steps_of.contains(id) && !request.stamps.empty()) {
        request.steps = steps_of.at(id);
        trace.requests.push_back(std::move(request));
      } else if (told.contains(request.model)) {
        ++trace.unjoined;
      } else {
        ++trace.others;
      }
    }
    if (trace.requests.empty())
      wrong(fmt::format("none of its {} requests ran plan '{}'{}", requests_.size(), plan_.name,
                        options_.model.empty() ? "" : " as model '" + options_.model + "'"));
    begin_at_zero(trace);
    return trace;
  }

  static void begin_at_zero(ServedTrace& trace) {
    int64_t first = INT64_MAX;
    const auto all = [&](auto visit) {
      for (ServedRequest& request : trace.requests)
        for (auto& [name, ns] : request.stamps) visit(ns);
      for (ServedStep& step : trace.steps)
        for (ServedEvent& event : step.events) visit(event.begin_ns), visit(event.end_ns);
    };
    all([&](int64_t& ns) { first = std::min(first, ns); });
    all([&](int64_t& ns) {
      ns -= first;
      trace.end_ns = std::max(trace.end_ns, ns);
    });
  }

  const std::string& file_;
  const plan::Plan& plan_;
  const ServedOptions& options_;
  std::map<std::string, int, std::less<>> actors_, kernels_;
  std::map<uint64_t, ServedRequest> requests_;
  std::vector<ServedStep> steps_;
};

}  // namespace

int64_t ServedRequest::at_ns(std::string_view stamp) const {
  for (const auto& [name, ns] : stamps)
    if (name == stamp) return ns;
  return 0;
}

ServedTrace served_trace(std::string_view text, const std::string& file, const plan::Plan& plan,
                         const ServedOptions& options) {
  return Reader(file, plan, options).read(text);
}

std::string name_of(const plan::Plan& plan, const ServedEvent& event) {
  if (event.kernel < 0) return plan.actors[event.actor].name;
  const std::string& name = plan.kernels[event.kernel].name;
  return event.kernels > 1 ? fmt::format("{} and {} more", name, event.kernels - 1) : name;
}

}  // namespace sluice::plan_viz
