#include "tools/plan_viz/debug/shell.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iostream>

#include "runtime/api/api_support.h"
#include "runtime/bundle/bundle.h"
#include "runtime/debug/debugger.h"
#include "runtime/family/family_bundle.h"
#include "runtime/session/engine.h"
#include "tools/plan_viz/debug/answers.h"
#include "tools/sluice_run/npy.h"

namespace sluice::plan_viz {
namespace {

using Words = std::vector<std::string>;

// The words of a command. Blanks divide them, but not within quotes; what follows a # is a comment.
Words words_of(const std::string& line) {
  Words words;
  for (size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) < line.size() && line[at] != '#';) {
    const char quote = line[at] == '\'' || line[at] == '"' ? line[at] : '\0';
    const size_t begin = quote != '\0' ? at + 1 : at;
    const size_t end =
        quote != '\0' ? line.find(quote, begin) : std::min(line.find_first_of(" \t\r", begin), line.size());
    SLUICE_CHECK(end != std::string::npos, "'{}': a quote is not closed", line);
    words.push_back(line.substr(begin, end - begin));
    at = end + (quote != '\0' ? 1 : 0);
  }
  return words;
}

int64_t number(const std::string& what, const std::string& word) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  SLUICE_CHECK(error == std::errc() && end == word.data() + word.size() && value >= 0,
               "{} '{}': it must be a number that is not negative", what, word);
  return value;
}

// A session of the bundle, in a process that does nothing else.
class Shell {
 public:
  explicit Shell(const DebugOptions& options)
      : options_(options),
        engine_(EngineOptions{.cores = options.cores, .manual_stepping = true}),
        session_(load()),
        debugger_(engine_, session_, options.shuffle) {
    inputs_ = run::make_inputs(api::ports_of({}, session_.inputs(), {}), options.input);
    std::vector<InputTensor> inputs;
    for (const api::Tensor& tensor : inputs_)
      inputs.push_back({tensor.raw(), TensorSpec::contiguous(api::type_of(tensor))});
    debugger_.submit(std::move(inputs), static_cast<uint64_t>(options.steps));
  }

  // False after `quit`.
  bool obey(const std::string& line);
  uint64_t steps_left() const { return debugger_.steps_left(); }
  void print(Answer answer, const std::string& line) const;

  struct Command {
    const char* name;
    const char* usage;
    const char* what;
    Answer (Shell::*run)(const Words& words);
  };
  static const std::vector<Command>& commands();

 private:
  Session load();
  Answer add_breakpoint(const Words& words);
  Answer breakpoints(const Words& words);
  Answer remove(const Words& words);
  Answer step(const Words& words);
  Answer go_on(const Words& words);
  Answer look(const Words& words);
  Answer change(const Words& words);
  Answer actors(const Words& words);
  Answer registers(const Words& words);
  Answer results(const Words& words);
  Answer help(const Words& words);
  api::Tensor value_of(int reg, int slot, int part);
  std::string part_name(int reg, int part) const;
  // Takes "slot S" and "part P" out of the words. The newest slot where none is given.
  struct Place {
    int slot = -1, part = 0;
  };
  static Place take_place(Words& words);

  const DebugOptions& options_;
  Engine engine_;
  Session session_;
  Debugger debugger_;
  std::vector<api::Tensor> inputs_;  // which steps borrow
};

const std::vector<Shell::Command>& Shell::commands() {
  static const std::vector<Command> all = {
      {"break", "break ACTOR|nan [REGISTER] [step N] [micro K]",
       "stop before ACTOR fires, or when a register has got a NaN or an infinity", &Shell::add_breakpoint},
      {"breaks", "breaks", "list breakpoints", &Shell::breakpoints},
      {"delete", "delete NUMBER", "remove a breakpoint", &Shell::remove},
      {"step", "step [N]", "one message: one firing (or N)", &Shell::step},
      {"continue", "continue", "go on until a breakpoint, or the end", &Shell::go_on},
      {"look", "look REGISTER [slot S] [part P] [@FILE.npy]",
       "its slots, who has them, and its newest value; the file gets the value", &Shell::look},
      {"set", "set REGISTER VALUE [slot S] [part P]", "another value: numbers with commas, zeros, or @FILE.npy",
       &Shell::change},
      {"actors", "actors", "who has fired, and who waits for whom", &Shell::actors},
      {"registers", "registers", "how full they are, and who has their slots", &Shell::registers},
      {"results", "results", "of the last step that is finished", &Shell::results},
      {"help", "help", "this list", &Shell::help},
  };
  return all;
}

Session Shell::load() {
  for (const std::string& path : options_.backends) engine_.load_backend(path);
  for (const std::string& path : options_.extensions) engine_.load_extension(path);
  const BundleSource source(options_.bundle);
  SLUICE_CHECK_KIND(kUnsupported, !is_family_bundle(source),
                    "{}: it has a plan for each of several sizes; debug the bundle of a graph with one size",
                    options_.bundle);
  return load_session(engine_, source);
}

Answer Shell::add_breakpoint(const Words& words) {
  Breakpoint b;
  size_t at = 1;
  const auto is_key = [&] { return words[at] == "step" || words[at] == "micro"; };
  if (at < words.size() && words[at] == "nan") {
    b.not_finite = true;
    if (++at < words.size() && !is_key()) b.reg = debugger_.register_named(words[at++]);
  } else if (at < words.size() && !is_key()) {
    b.actor = debugger_.actor_named(words[at++]);
  }
  for (; at < words.size(); at += 2) {
    SLUICE_CHECK(is_key() && at + 1 < words.size(), "'{}': only `step N` and `micro K` may follow", words[at]);
    (words[at] == "step" ? b.step : b.nth) = number(words[at], words[at + 1]);
  }
  SLUICE_CHECK(b.not_finite || b.actor >= 0 || b.step >= 0 || b.nth >= 0, "where? It must be: {}", commands()[0].usage);
  return answer_of(debugger_.add(b), debugger_.plan());
}

Answer Shell::breakpoints(const Words&) {
  Answer all;
  boost::json::array json;
  for (const Breakpoint& b : debugger_.breakpoints()) {
    Answer one = answer_of(b, debugger_.plan());
    all.text += one.text;
    json.push_back(std::move(one.json));
  }
  all.json["breakpoints"] = std::move(json);
  return all;
}

Answer Shell::remove(const Words& words) {
  SLUICE_CHECK(words.size() == 2, "which? It must be: delete NUMBER");
  const int64_t n = number("breakpoint", words[1]);
  debugger_.remove(static_cast<int>(std::min<int64_t>(n, INT32_MAX)));
  return {fmt::format("breakpoint {} is gone\n", n), {{"deleted", n}}};
}

Answer Shell::step(const Words& words) {
  int64_t n = words.size() > 1 ? number("step", words[1]) : 1;
  Answer all;
  boost::json::array json;
  for (bool more = true; more && n > 0; --n) {
    const Stop stop = debugger_.step();
    more = stop.reason == Stop::Reason::kStepped;
    Answer one = answer_of(stop, debugger_);
    all.text += one.text;
    json.push_back(std::move(one.json));
  }
  all.json["steps"] = std::move(json);
  return all;
}

Answer Shell::go_on(const Words&) { return answer_of(debugger_.run(), debugger_); }

Shell::Place Shell::take_place(Words& words) {
  Place place;
  for (size_t at = 2; at < words.size();) {
    if (words[at] != "slot" && words[at] != "part") {
      ++at;
      continue;
    }
    SLUICE_CHECK(at + 1 < words.size(), "{}: which? A number must follow", words[at]);
    const int64_t n = std::min<int64_t>(number(words[at], words[at + 1]), INT32_MAX);
    (words[at] == "slot" ? place.slot : place.part) = static_cast<int>(n);
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(at), words.begin() + static_cast<std::ptrdiff_t>(at) + 2);
  }
  return place;
}

std::string Shell::part_name(int reg, int part) const {
  const std::string& name = debugger_.plan().registers[reg].name;
  return debugger_.parts(reg).size() > 1 ? name + ", part '" + debugger_.part_of(reg, part).name + "'" : name;
}

api::Tensor Shell::value_of(int reg, int slot, int part) {
  const SlotPart& p = debugger_.part_of(reg, part);
  api::Tensor value(static_cast<api::DType>(p.spec.dtype), p.spec.shape.vec());
  const std::vector<std::byte> data = debugger_.look(reg, slot, part);
  if (!data.empty()) std::memcpy(value.raw(), data.data(), data.size());
  return value;
}

Answer Shell::look(const Words& given) {
  Words words = given;
  const Place place = take_place(words);
  SLUICE_CHECK(words.size() == 2 || (words.size() == 3 && words[2].starts_with('@')),
               "it must be: look REGISTER [slot S] [part P] [@FILE.npy]");
  const int reg = debugger_.register_named(words[1]);
  Answer all = slots_answer(debugger_, reg);
  const std::vector<plan::SlotState> slots = debugger_.slots(reg);
  const bool any = std::any_of(slots.begin(), slots.end(), [](const auto& slot) { return slot.written; });
  const bool asked = place.slot >= 0 || place.part > 0 || words.size() == 3;
  if (!asked && (!any || debugger_.parts(reg).empty())) return all;
  const int slot = place.slot >= 0 ? place.slot : debugger_.newest_slot(reg);
  const api::Tensor value = value_of(reg, slot, place.part);
  if (words.size() == 3) {
    run::write_npy(words[2].substr(1), value);
    all.text += fmt::format("{}: slot {}: {}\n", words[2].substr(1), slot, value.str());
    all.json["file"] = words[2].substr(1);
    return all;
  }
  Answer one = value_answer(fmt::format("{}, slot {}", part_name(reg, place.part), slot), value);
  all.text += one.text;
  all.json["value"] = std::move(one.json);
  return all;
}

Answer Shell::change(const Words& given) {
  Words words = given;
  const Place place = take_place(words);
  SLUICE_CHECK(words.size() == 3, "it must be: set REGISTER VALUE [slot S] [part P]; no blanks within VALUE");
  const int reg = debugger_.register_named(words[1]);
  const SlotPart& part = debugger_.part_of(reg, place.part);
  const int slot = place.slot >= 0 ? place.slot : debugger_.newest_slot(reg);
  const api::Port port{words[1], static_cast<api::DType>(part.spec.dtype), part.spec.shape.vec()};
  const api::Tensor value = run::make_inputs({port}, {{words[2]}, {}, "", 0})[0];
  debugger_.change(reg, slot, place.part, api::type_of(value), static_cast<const std::byte*>(value.raw()));
  Answer answer = value_answer(fmt::format("{}, slot {}", part_name(reg, place.part), slot), value);
  answer.json = {{"register", words[1]}, {"slot", slot}, {"value", std::move(answer.json)}};
  return answer;
}

Answer Shell::actors(const Words&) { return actors_answer(debugger_, options_.text); }
Answer Shell::registers(const Words&) { return registers_answer(debugger_, options_.text); }

Answer Shell::results(const Words&) {
  SLUICE_CHECK(!debugger_.results().empty(), "no step is finished; `continue` goes on");
  Answer all;
  boost::json::array json;
  for (size_t i = 0; i < debugger_.results().size(); ++i) {
    Answer one = value_answer(session_.outputs()[i].name, api::tensor_of(debugger_.results()[i]));
    all.text += one.text;
    json.push_back(std::move(one.json));
  }
  all.json["results"] = std::move(json);
  return all;
}

Answer Shell::help(const Words&) { return {debug_commands(), {{"help", debug_commands()}}}; }

void Shell::print(Answer answer, const std::string& line) const {
  if (!options_.json) {
    std::cout << answer.text << std::flush;
    return;
  }
  boost::json::object json{{"command", line}};
  for (auto& [name, value] : answer.json) json[name] = std::move(value);
  std::cout << boost::json::serialize(json) << "\n" << std::flush;
}

bool Shell::obey(const std::string& line) {
  const Words words = words_of(line);
  if (words.empty()) return true;
  if (words[0] == "quit") return false;
  const auto at =
      std::find_if(commands().begin(), commands().end(), [&](const Command& c) { return c.name == words[0]; });
  SLUICE_CHECK(at != commands().end(), "'{}': there is no such command; `help` lists them", words[0]);
  print((this->*at->run)(words), line);
  return true;
}

// Commands of a person: what is wrong is told, and the next one may be better.
int converse(Shell& shell) {
  std::string line;
  while (std::cout << "(debug) " << std::flush, std::getline(std::cin, line)) {
    try {
      if (!shell.obey(line)) return 0;
    } catch (const std::exception& error) {
      std::cout << "error: " << error.what() << "\n";
    }
  }
  return 0;
}

// Commands of a file. It must not end in the middle of a run, since what is behind was never looked at.
int follow(Shell& shell, std::istream& script, const std::string& name, bool echo) {
  std::string line;
  int at = 0;
  while (std::getline(script, line)) {
    ++at;
    if (echo && line.find_first_not_of(" \t\r") != std::string::npos) std::cout << "(debug) " << line << "\n";
    try {
      if (!shell.obey(line)) return 0;
    } catch (const Error& error) {
      std::string_view what = error.what();
      if (what.starts_with("debug: ")) what.remove_prefix(7);  // it stands in front of the place
      throw Error(error.kind(), fmt::format("debug: {}:{}: {}", name, at, what));
    } catch (const api::Error& error) {
      throw Error(ErrorKind::kValue, fmt::format("debug: {}:{}: {}", name, at, error.what()));
    }
  }
  const uint64_t left = shell.steps_left();
  SLUICE_CHECK(left == 0, "debug: {}:{}: the script ends, and {} not finished; it must end with `continue` or `quit`",
               name, at, left == 1 ? "a step is" : fmt::format("{} steps are", left));
  return 0;
}

}  // namespace

std::string debug_commands() {
  std::string text = "Commands:\n";
  for (const Shell::Command& command : Shell::commands())
    text += fmt::format("  {:<50}{}\n", command.usage, command.what);
  return text + fmt::format("  {:<50}{}\n", "quit", "give up the steps that are not finished") +
         "Steps, micro-batches and slots count from 0. Names with blanks stand in quotes; # begins a comment.\n";
}

int debug_bundle(const DebugOptions& options) {
  std::ifstream file;
  if (!options.script.empty()) {
    file.open(options.script);
    SLUICE_CHECK_KIND(kIo, file.is_open(), "debug: {}: cannot be read: {}", options.script, std::strerror(errno));
  }
  Shell shell(options);
  if (!options.script.empty()) return follow(shell, file, options.script, !options.json);
  if (isatty(STDIN_FILENO) != 0 && !options.json) return converse(shell);
  return follow(shell, std::cin, "standard input", !options.json);
}

}  // namespace sluice::plan_viz
