#include "tools/plan_viz/completion.h"

#include <fmt/ranges.h>

namespace sluice::plan_viz {

namespace {

// In single quotes of a shell, in which `quote` stands for one.
std::string quoted(const std::string& text, const char* quote) {
  std::string s = "'";
  for (const char c : text) s += c == '\'' ? std::string(quote) : std::string(1, c);
  return s + "'";
}

std::string for_bash(const std::vector<CommandWords>& commands) {
  std::string names, cases;
  for (const CommandWords& c : commands) {
    names += " " + c.name;
    cases += fmt::format("    {}) options='{}' ;;\n", c.name, fmt::join(c.options, " "));
  }
  return "_plan_viz() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} options=\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases +
         "  esac\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W '" +
         names.substr(1) +
         "' -- \"$word\"))\n"
         "  elif [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
         "  else COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
         "}\n"
         "complete -o filenames -F _plan_viz plan-viz\n";
}

std::string for_zsh(const std::vector<CommandWords>& commands) {
  std::string names, cases;
  for (const CommandWords& c : commands) {
    names += "    " + quoted(c.name + ":" + c.help, "'\\''") + "\n";
    cases += fmt::format("    {}) options=({}) ;;\n", c.name, fmt::join(c.options, " "));
  }
  return "#compdef plan-viz\n_plan_viz() {\n  local -a commands=(\n" + names + "  ) options\n  case $words[2] in\n" +
         cases +
         "  esac\n"
         "  if (( CURRENT == 2 )); then _describe command commands\n"
         "  elif [[ $words[CURRENT] == -* ]]; then compadd -- $options\n"
         "  else _files; fi\n"
         "}\n"
         "(( $+functions[compdef] )) && compdef _plan_viz plan-viz\n";
}

std::string for_fish(const std::vector<CommandWords>& commands) {
  std::string s;
  for (const CommandWords& c : commands) {
    s += fmt::format("complete -c plan-viz -n __fish_use_subcommand -f -a {} -d {}\n", c.name, quoted(c.help, "\\'"));
    for (const std::string& option : c.options) {
      const bool longer = option.starts_with("--");
      s += fmt::format("complete -c plan-viz -n '__fish_seen_subcommand_from {}' -{} {}\n", c.name, longer ? "l" : "s",
                       option.substr(longer ? 2 : 1));
    }
  }
  return s;
}

}  // namespace

std::string completion(const std::string& shell, const std::vector<CommandWords>& commands) {
  if (shell == "zsh") return for_zsh(commands);
  return shell == "fish" ? for_fish(commands) : for_bash(commands);
}

}  // namespace sluice::plan_viz
