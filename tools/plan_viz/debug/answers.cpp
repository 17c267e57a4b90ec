#include "tools/plan_viz/debug/answers.h"

#include <algorithm>
#include <cmath>

#include "base/elements.h"
#include "tools/plan_viz/text.h"
#include "tools/sluice_run/values.h"

namespace sluice::plan_viz {
namespace {

namespace js = boost::json;

// "step 0", or "step 0, micro-batch 1 of 4".
std::string step_str(const Firing& firing) {
  const std::string step = fmt::format("step {}", firing.step);
  return firing.of > 1 ? fmt::format("{}, micro-batch {} of {}", step, firing.nth, firing.of) : step;
}

js::object json_of(const Firing& firing, const plan::Plan& plan) {
  js::object json{{"actor", plan.actors[firing.actor].name}, {"step", firing.step}};
  if (firing.of > 1) json["micro_batch"] = firing.nth, json["of"] = firing.of;
  js::array wrote;
  for (const Firing::Token& token : firing.wrote)
    wrote.push_back(js::object{{"register", plan.registers[token.reg].name}, {"slot", token.slot}});
  if (!wrote.empty()) json["wrote"] = std::move(wrote);
  return json;
}

// "(0, 2)": where an element is in a tensor.
std::string place_str(const Shape& shape, int64_t element) {
  Shape place = shape;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    place[d] = element % shape[d];
    element /= shape[d];
  }
  return place.str();
}

std::string wrote_str(const Firing& firing, const plan::Plan& plan) {
  std::string text;
  for (const Firing::Token& token : firing.wrote)
    text += fmt::format("{} '{}', slot {}", text.empty() ? ", and has written" : ",", plan.registers[token.reg].name,
                        token.slot);
  return text;
}

// Steps that are finished, those that follow each other in one line; each that failed with its error.
void add_finished(Answer& answer, const Stop& stop) {
  const std::vector<FinishedStep>& steps = stop.finished;
  js::array json;
  for (size_t i = 0; i < steps.size();) {
    size_t last = i;
    while (steps[i].status.ok() && last + 1 < steps.size() && steps[last + 1].status.ok()) ++last;
    if (!steps[i].status.ok())
      answer.text += fmt::format("step {} has failed: {}\n", steps[i].step, steps[i].status.message());
    else if (last == i)
      answer.text += fmt::format("step {} is finished\n", steps[i].step);
    else
      answer.text += fmt::format("steps {} to {} are finished\n", steps[i].step, steps[last].step);
    for (; i <= last; ++i) {
      js::object& one = json.emplace_back(js::object{{"step", steps[i].step}}).as_object();
      if (!steps[i].status.ok()) one["error"] = steps[i].status.message();
    }
  }
  if (!json.empty()) answer.json["finished"] = std::move(json);
}

std::string where_str(const Stop& stop, const Debugger& debugger) {
  const Stop::Where& where = *stop.where;
  const SlotPart& part = debugger.parts(where.reg)[where.part];
  return fmt::format("{}: '{}' has written {} to register '{}', slot {}{}, element {}; nobody has read it yet",
                     step_str(*stop.firing), debugger.plan().actors[stop.firing->actor].name, where.found.value,
                     debugger.plan().registers[where.reg].name, where.slot,
                     debugger.parts(where.reg).size() > 1 ? ", part '" + part.name + "'" : "",
                     place_str(part.spec.shape, where.found.element));
}

std::string readers_str(const plan::SlotState& slot, const plan::Plan& plan) {
  std::string text;
  const auto list = [&](bool taken, const char* what) {
    std::string names;
    for (const auto& reader : slot.readers)
      if (reader.taken == taken) names += (names.empty() ? "'" : ", '") + plan.actors[reader.actor].name + "'";
    if (!names.empty()) text += fmt::format("{}{} {}", text.empty() ? "" : "; ", what, names);
  };
  list(false, "to be read by");
  list(true, "held by");
  for (const int reg : slot.in_place)
    text += fmt::format("{}'{}' lies in it", text.empty() ? "" : "; ", plan.registers[reg].name);
  return text;
}

std::string slot_str(const plan::SlotState& slot, const plan::Plan& plan, const plan::Register& reg) {
  if (!slot.used) return "free";
  if (!slot.written) return fmt::format("value {}, which '{}' is writing", slot.token, plan.actors[reg.producer].name);
  const std::string readers = readers_str(slot, plan);
  return fmt::format("value {}{}{}", slot.token, readers.empty() ? "" : ", ", readers);
}

js::object json_of(const plan::SlotState& slot, const plan::Plan& plan) {
  js::object json{{"slot", slot.slot}, {"state", !slot.used ? "free" : slot.written ? "written" : "being written"}};
  if (!slot.used) return json;
  json["value"] = slot.token;
  js::array unread, held, in_place;
  for (const auto& reader : slot.readers)
    (reader.taken ? held : unread).push_back(js::value(plan.actors[reader.actor].name));
  for (const int reg : slot.in_place) in_place.push_back(js::value(plan.registers[reg].name));
  json["to_be_read_by"] = std::move(unread);
  json["held_by"] = std::move(held);
  if (!in_place.empty()) json["in_place"] = std::move(in_place);
  return json;
}

std::string wait_str(const plan::FiringRule::Wait& wait, const plan::Plan& plan) {
  std::string text = wait.str(plan);
  if (wait.index < 0) return text;
  if (!wait.credit) return text + " of '" + plan.actors[plan.registers[plan.edges[wait.index].reg].producer].name + "'";
  return text;
}

int free_slots(const std::vector<plan::SlotState>& slots) {
  return static_cast<int>(std::count_if(slots.begin(), slots.end(), [](const auto& slot) { return !slot.used; }));
}

}  // namespace

Answer answer_of(const Breakpoint& b, const plan::Plan& plan) {
  Answer answer;
  js::object& json = answer.json;
  json["breakpoint"] = b.number;
  const std::string actor = b.actor < 0 ? "" : plan.actors[b.actor].name;
  std::string when;
  if (b.step >= 0) when += fmt::format(", step {}", b.step), json["step"] = b.step;
  if (b.nth >= 0) when += fmt::format(", micro-batch {}", b.nth), json["micro_batch"] = b.nth;
  if (b.actor >= 0) json["actor"] = actor;
  if (b.not_finite) {
    const std::string reg = b.reg < 0 ? "a register" : "register '" + plan.registers[b.reg].name + "'";
    json["nan"] = true;
    if (b.reg >= 0) json["register"] = plan.registers[b.reg].name;
    answer.text = fmt::format("breakpoint {}: when {} has got a NaN or an infinity{}\n", b.number, reg, when);
  } else {
    answer.text = fmt::format("breakpoint {}: before {}{}\n", b.number,
                              b.actor < 0 ? "the first firing" : "'" + actor + "' fires", when);
  }
  return answer;
}

Answer answer_of(const Stop& stop, Debugger& debugger) {
  const plan::Plan& plan = debugger.plan();
  Answer answer;
  add_finished(answer, stop);
  js::object& json = answer.json;
  json["firings"] = stop.firings;
  const std::string after = "after " + count_str(stop.firings, "firing");
  switch (stop.reason) {
    case Stop::Reason::kStepped:
      json["stopped"] = "stepped";
      answer.text = fmt::format("{}: '{}' has fired{}\n", step_str(*stop.firing), plan.actors[stop.firing->actor].name,
                                wrote_str(*stop.firing, plan)) +
                    answer.text;
      break;
    case Stop::Reason::kBreakpoint:
      json["stopped"] = "breakpoint";
      answer.text += fmt::format("breakpoint {}, {}\n", stop.at->number, after);
      break;
    case Stop::Reason::kNotFinite:
      json["stopped"] = "nan";
      json["register"] = plan.registers[stop.where->reg].name;
      json["slot"] = stop.where->slot;
      json["element"] = stop.where->found.element;
      json["found"] = fmt::format("{}", stop.where->found.value);
      answer.text += fmt::format("breakpoint {}, {}: {}\n", stop.at->number, after, where_str(stop, debugger));
      break;
    case Stop::Reason::kEnd: {
      json["stopped"] = "end";
      const uint64_t left = debugger.steps_left();
      json["steps_left"] = left;
      answer.text += left == 0 ? fmt::format("the end, {}: all steps are finished\n", after)
                               : fmt::format("the end, {}: nothing can fire, and {} not finished\n", after,
                                             left == 1 ? "a step is" : fmt::format("{} steps are", left));
      return answer;
    }
  }
  if (stop.at) json["breakpoint"] = stop.at->number;
  if (stop.firing && stop.reason != Stop::Reason::kBreakpoint) json["fired"] = json_of(*stop.firing, plan);
  if (const std::optional<Firing> next = debugger.next()) {
    json["next"] = json_of(*next, plan);
    answer.text += fmt::format("next is '{}', {}\n", plan.actors[next->actor].name, step_str(*next));
  }
  return answer;
}

Answer actors_answer(Debugger& debugger, const TextOptions& options) {
  const plan::Plan& plan = debugger.plan();
  const std::optional<Firing> next = debugger.next();
  std::vector<std::vector<std::string>> rows{{"actor", "fired", "next", "it"}};
  js::array json;
  const std::vector<ActorState> states = debugger.actors();
  for (size_t a = 0; a < states.size(); ++a) {
    const ActorState& state = states[a];
    std::string waits;
    js::array all;
    for (const plan::FiringRule::Wait& wait : state.waits) {
      waits += (waits.empty() ? "waits for " : ", ") + wait_str(wait, plan);
      all.push_back(js::value(wait_str(wait, plan)));
    }
    const bool is_next = next && next->actor == static_cast<int>(a);
    rows.push_back({plan.actors[a].name, std::to_string(state.firings), step_str(state.next),
                    is_next         ? "fires next"
                    : state.ready   ? "may fire"
                    : waits.empty() ? "has ended"
                                    : waits});
    js::object& one = json.emplace_back(json_of(state.next, plan)).as_object();
    one["firings"] = state.firings;
    one["ready"] = state.ready;
    one["next"] = is_next;
    if (plan::is_started(plan.actors[a])) one["start_credits"] = state.starts;
    one["waits"] = std::move(all);
  }
  Answer answer;
  answer.text = table(rows, {false, true, false, false}, options.width);
  answer.json["actors"] = std::move(json);
  return answer;
}

Answer registers_answer(Debugger& debugger, const TextOptions& options) {
  const plan::Plan& plan = debugger.plan();
  std::vector<std::vector<std::string>> rows{{"register", "of", "slots", "free", "values"}};
  js::array json;
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    const plan::Register& reg = plan.registers[r];
    const std::vector<plan::SlotState> slots = debugger.slots(static_cast<int>(r));
    std::string values;
    js::array all;
    for (const plan::SlotState& slot : slots) {
      all.push_back(json_of(slot, plan));
      if (slot.used)
        values += fmt::format("{}{}: {}", values.empty() ? "" : " | ", slot.slot, slot_str(slot, plan, reg));
    }
    const int free = free_slots(slots);
    rows.push_back({reg.name, plan.actors[reg.producer].name, std::to_string(reg.quota), std::to_string(free), values});
    json.push_back(js::object{{"register", reg.name},
                              {"producer", plan.actors[reg.producer].name},
                              {"free", free},
                              {"slots", std::move(all)}});
  }
  Answer answer;
  answer.text = table(rows, {false, false, true, true, false}, options.width);
  answer.json["registers"] = std::move(json);
  return answer;
}

Answer slots_answer(Debugger& debugger, int reg) {
  const plan::Plan& plan = debugger.plan();
  const plan::Register& r = plan.registers[reg];
  const std::vector<plan::SlotState> slots = debugger.slots(reg);
  const int free = free_slots(slots);
  Answer answer;
  answer.text = fmt::format("register '{}' of '{}': {} of {}, {} free\n", r.name, plan.actors[r.producer].name,
                            count_str(slots.size(), "slot"), short_bytes(r.bytes), free);
  js::array json;
  for (const plan::SlotState& slot : slots) {
    answer.text += fmt::format("  slot {}: {}\n", slot.slot, slot_str(slot, plan, r));
    json.push_back(json_of(slot, plan));
  }
  answer.json = {{"register", r.name},
                 {"producer", plan.actors[r.producer].name},
                 {"bytes", r.bytes},
                 {"free", free},
                 {"slots", std::move(json)}};
  return answer;
}

Answer value_answer(const std::string& name, const api::Tensor& value) {
  constexpr int64_t kMost = 1000;  // elements that JSON lists
  Answer answer;
  answer.text = run::show(name, value);
  js::array shape(value.shape().begin(), value.shape().end());
  answer.json = {{"name", name}, {"dtype", api::dtype_name(value.dtype())}, {"shape", std::move(shape)}};
  if (value.size() > kMost) return answer;
  const auto dtype = static_cast<DType>(value.dtype());
  js::array elements;
  for (int64_t i = 0; i < value.size(); ++i) {
    const double x =
        element_of(dtype, static_cast<const std::byte*>(value.raw()) + static_cast<size_t>(i) * dtype_size(dtype));
    elements.push_back(std::isfinite(x) ? js::value(x) : js::value(fmt::format("{}", x)));  // JSON has no NaN
  }
  answer.json["elements"] = std::move(elements);
  return answer;
}

}  // namespace sluice::plan_viz
