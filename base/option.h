#pragma once
// What a table of options says of each of them besides its type and its default. There are two tables,
// compiler/options.inc and runtime/options.inc; docs/adding-an-option.md walks through an entry.
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/attr.h"
#include "base/device.h"
#include "base/fix.h"

namespace sluice {

struct OptionFacts {
  static constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::min();

  std::string_view name;
  std::string_view c_name = {};   // of the field in include/sluice/sluice.h; none: embedders do not have the option
  std::string_view accepts = {};  // the texts that it may be, as errors say them: "quick, every or search"
  int64_t least = kAnyNumber;     // a smaller number is refused
  std::string_view zero = {};     // what 0 stands for, for errors
  // A list or a map is kept in a plan entry by entry, as "ENTRY.KEY".
  std::string_view entry = {};
  bool recorded = true;  // a plan keeps it where it differs from the default
  bool graphs = true;    // graphs of Python take it by this name
  // A method of graph.config that does no more than set it: a switch for a bool, and for a text that is `on` or the
  // default; otherwise it takes the value. config.report() tells of a switch what `reports`, a pass, has rewritten.
  std::string_view setter = {}, on = {}, reports = {};
  std::string_view doc = {};  // the docstring of `setter`, whose lines end where help() ends them
};

// The texts of `accepts`, one by one.
std::vector<std::string> accepted_texts(const OptionFacts& facts);

// Throw kValue with the fix, where a value is none that the table allows.
void check_text(const OptionFacts& facts, const std::string& value, const std::string& initial);
void check_number(const OptionFacts& facts, int64_t value);
template <class T>
void check_option(const OptionFacts& facts, const T& value, const T& initial) {
  if constexpr (std::is_same_v<T, std::string>) check_text(facts, value, initial);
  if constexpr (std::is_same_v<T, int>) check_number(facts, value);
}
// A value as a plan keeps it.
inline Attr option_attr(bool value) { return value; }
inline Attr option_attr(int value) { return int64_t{value}; }
inline Attr option_attr(double value) { return value; }
inline Attr option_attr(uint64_t value) { return static_cast<int64_t>(value); }
inline Attr option_attr(const std::string& value) { return value; }
inline Attr option_attr(const DeviceId& value) { return value.str(); }

[[noreturn]] void refuse_option(const std::string& message, Fix fix);

}  // namespace sluice
