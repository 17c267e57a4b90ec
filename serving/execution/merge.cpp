#include "serving/execution/merge.h"

#include <fmt/format.h>

#include <cctype>
#include <functional>
#include <optional>
#include <sstream>

#include "serving/core/error.h"

namespace sluice::serving {

namespace {

// Calls `value` for each %n of a line that is not in quotes, and puts its answer in the number's place.
std::string with_values(const std::string& line, const std::function<std::string(int64_t id)>& value) {
  std::string out;
  bool quoted = false;
  for (size_t at = 0; at < line.size();) {
    const char c = line[at];
    if (quoted && c == '\\' && at + 1 < line.size()) {
      out.append(line, at, 2);
      at += 2;
      continue;
    }
    if (c == '"') quoted = !quoted;
    ++at;
    if (quoted || c != '%') {
      out += c;
      continue;
    }
    int64_t id = 0;
    while (at < line.size() && std::isdigit(static_cast<unsigned char>(line[at]))) id = id * 10 + (line[at++] - '0');
    out += "%" + value(id);
  }
  return out;
}

// The text in the first quotes at or behind `from`; where it ends is left in `from`.
std::string quoted_text(const std::string& line, size_t& from) {
  std::string text;
  const size_t begin = line.find('"', from);
  if (begin == std::string::npos) wrong("ensemble: a line of a graph has no name: " + line);
  size_t at = begin + 1;
  for (; at < line.size() && line[at] != '"'; ++at) {
    if (line[at] == '\\' && at + 1 < line.size()) ++at;
    text += line[at];
  }
  from = at + 1;
  return text;
}

std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

struct Made {
  int64_t id = 0;
  std::string type;
};

class Merger {
 public:
  Merger(const std::vector<GraphPart>& parts, const std::set<std::string>& inputs) : parts_(parts), inputs_(inputs) {
    for (const GraphPart& part : parts)
      for (const auto& [from, tensor] : part.outputs) {
        if (inputs.contains(tensor))
          wrong(fmt::format("ensemble: step '{}' makes '{}', which is an input", part.name, tensor));
        if (!makers_.emplace(tensor, &part).second) wrong(fmt::format("ensemble: '{}' is made by two steps", tensor));
      }
  }

  MergedGraph run(const std::string& name, const std::vector<std::string>& outputs) {
    text_ = "graph " + in_quotes(name) + " {\n";
    std::vector<bool> done(parts_.size(), false);
    // A step is added when all tensors that it takes have been made. If no step can be added in a whole round, the rest
    // wait for each other.
    for (size_t left = parts_.size(); left > 0;) {
      const size_t before = left;
      for (size_t p = 0; p < parts_.size(); ++p) {
        if (done[p] || !ready(parts_[p])) continue;
        add(p);
        done[p] = true;
        --left;
      }
      if (left == before) wrong("ensemble: its steps wait for each other in a circle");
    }
    for (const std::string& output : outputs) {
      const auto found = made_.find(output);
      if (found == made_.end()) wrong(fmt::format("ensemble: output '{}': no step makes it", output));
      text_ += fmt::format("  output {} = %{}\n", in_quotes(output), found->second.id);
    }
    result_.text = text_ + "}\n";
    return std::move(result_);
  }

 private:
  bool ready(const GraphPart& part) const {
    bool all = true;
    for (const auto& [input, tensor] : part.inputs) {
      if (!inputs_.contains(tensor) && !makers_.contains(tensor))
        wrong(fmt::format("ensemble: step '{}': input '{}': '{}' is no input, and no step makes it", part.name, input,
                          tensor));
      all = all && (inputs_.contains(tensor) || made_.contains(tensor));
    }
    return all;
  }

  void add(size_t number) {
    const GraphPart& part = parts_[number];
    ids_.clear();
    types_.clear();
    std::istringstream lines(part.text);
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
      line = trimmed(line);
      if (line.empty() || line.front() == '#' || line == "}") continue;
      if (!inside) {  // graph "name" {
        inside = true;
        continue;
      }
      statement(number, part, line);
    }
  }

  // Values are numbered anew and variables get the step's number in front, so that equal names of two graphs stay
  // apart. The rest of a line is taken as it is.
  void statement(size_t number, const GraphPart& part, const std::string& line) {
    const auto known = [&](int64_t id) { return std::to_string(ids_.at(id)); };
    if (line.starts_with("output ")) return output(part, line);
    if (line.starts_with("update ")) {
      size_t at = 0;
      const std::string name = quoted_text(line, at);
      text_ += "  update " + in_quotes(variable(number, name)) + with_values(line.substr(at), known) + "\n";
      return;
    }
    if (line.starts_with("micro_batches"))
      throw Error(Code::kUnsupported, fmt::format("ensemble: step '{}': a graph of micro-batches", part.name));
    if (line.front() != '%') {  // a node without values
      text_ += "  " + with_values(line, known) + "\n";
      return;
    }
    const size_t equals = line.find('=');
    const std::string what = trimmed(line.substr(equals + 1));
    if (what.starts_with("input ")) return input(part, line, what);
    const std::string ids = with_values(line.substr(0, equals), [&](int64_t id) {
      ids_[id] = next_;
      return std::to_string(next_++);
    });
    for (const char* word : {"variable ", "constant "}) {
      if (!what.starts_with(word)) continue;
      size_t at = 0;
      const std::string name = quoted_text(what, at);
      types_[ids_.rbegin()->first] = type_of(what.substr(at));
      text_ += "  " + ids + "= " + word + in_quotes(variable(number, name)) + what.substr(at) + "\n";
      return;
    }
    text_ += "  " + ids + "= " + with_values(what, known) + "\n";
    note_types(line.substr(0, equals), what);
  }

  // ": float32(4, 3) [device ...]" without what is in brackets.
  static std::string type_of(const std::string& rest) {
    const size_t colon = rest.find(':');
    const size_t bracket = rest.find('[', colon);
    return trimmed(rest.substr(colon + 1, bracket == std::string::npos ? bracket : bracket - colon - 1));
  }

  // Types of the values of a node: behind the colon that is in no quotes, parted by commas outside of parentheses.
  void note_types(const std::string& names, const std::string& what) {
    bool quoted = false;
    int depth = 0;
    size_t colon = std::string::npos;
    for (size_t at = 0; at < what.size() && colon == std::string::npos; ++at) {
      const char c = what[at];
      if (quoted && c == '\\') {
        ++at;
        continue;
      }
      if (c == '"') quoted = !quoted;
      if (quoted) continue;
      depth += (c == '(' || c == '{') - (c == ')' || c == '}');
      if (c == ':' && depth == 0) colon = at;
    }
    if (colon == std::string::npos) return;
    std::vector<std::string> types(1);
    for (const char c : type_of(what.substr(colon))) {
      depth += (c == '(') - (c == ')');
      if (c == ',' && depth == 0)
        types.emplace_back();
      else
        types.back() += c;
    }
    size_t n = 0;
    with_values(names, [&](int64_t id) {
      std::string type = n < types.size() ? trimmed(types[n]) : "";
      if (const size_t strides = type.find(" strides "); strides != std::string::npos) type.resize(strides);
      types_[id] = type;
      ++n;
      return "";
    });
  }

  void input(const GraphPart& part, const std::string& line, const std::string& what) {
    size_t at = 0;
    const std::string name = quoted_text(what, at);
    const auto mapped = part.inputs.find(name);
    if (mapped == part.inputs.end())
      wrong(fmt::format("ensemble: step '{}': input '{}' is not in its input_map", part.name, name));
    const std::string type = type_of(what.substr(at));
    int64_t id = -1;
    with_values(line.substr(0, line.find('=')), [&](int64_t of_part) {
      id = of_part;
      return "";
    });
    // The step's input is a value that another step has made, or an input of the ensemble.
    auto found = made_.find(mapped->second);
    if (found == made_.end()) {  // an input of the whole, which is met first here
      text_ += fmt::format("  %{} = input {}{}\n", next_, in_quotes(mapped->second), what.substr(at));
      found = made_.emplace(mapped->second, Made{next_++, type}).first;
    }
    if (found->second.type != type)
      wrong(fmt::format("ensemble: step '{}': input '{}' takes {}; '{}' is {}", part.name, name, type, mapped->second,
                        found->second.type));
    ids_[id] = found->second.id;
    types_[id] = type;
  }

  void output(const GraphPart& part, const std::string& line) {
    size_t at = 0;
    const std::string name = quoted_text(line, at);
    if (line.find("extent_of", at) != std::string::npos)
      throw Error(Code::kUnsupported,
                  fmt::format("ensemble: step '{}': an output that varies in length by itself", part.name));
    const auto mapped = part.outputs.find(name);
    if (mapped == part.outputs.end()) return;
    with_values(line.substr(at), [&](int64_t id) {
      made_[mapped->second] = {ids_.at(id), types_.at(id)};
      return "";
    });
  }

  std::string variable(size_t number, const std::string& name) {
    std::string whole = fmt::format("{}/{}", number, name);
    result_.variables.insert(whole);
    return whole;
  }

  const std::vector<GraphPart>& parts_;
  const std::set<std::string>& inputs_;
  std::map<std::string, const GraphPart*> makers_;
  std::map<std::string, Made> made_;  // tensors of the whole
  std::map<int64_t, int64_t> ids_;    // of the part being added: values of the whole
  std::map<int64_t, std::string> types_;
  int64_t next_ = 0;
  std::string text_;
  MergedGraph result_;
};

}  // namespace

MergedGraph merge_graphs(const std::string& name, const std::vector<GraphPart>& parts,
                         const std::set<std::string>& inputs, const std::vector<std::string>& outputs) {
  return Merger(parts, inputs).run(name, outputs);
}

}  // namespace sluice::serving
