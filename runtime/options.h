#pragma once
// The options of a session. runtime/options.inc is the table of them, from which everything else here is made.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/option.h"
#include "kernels/kernel.h"
#include "plan/shard.h"

namespace sluice {

class SharedArenas;
struct OutputTensor;

using Timeout = std::chrono::nanoseconds;
inline constexpr Timeout kNoTimeout = Timeout::max();

using AfterStep = std::function<void(uint64_t step, const Status& status, const std::vector<OutputTensor>& outputs)>;

struct SessionOptions {
#define OPTION(type, name, initial, ...) type name = initial;
#define PUBLIC(type, name, c_name, initial, ...) type name = initial;
#define OBJECT(type, name, initial, ...) type name = initial;
#include "runtime/options.inc"
};

// Calls visit(facts, &SessionOptions::name) for each option but the objects, in the order of the table.
template <class Visit>
void each_session_option(Visit&& visit) {
#define OPTION(type, option, initial, ...) visit(OptionFacts{.name = #option, __VA_ARGS__}, &SessionOptions::option);
#define PUBLIC(type, option, c_field, initial, ...) \
  visit(OptionFacts{.name = #option, .c_name = #c_field, __VA_ARGS__}, &SessionOptions::option);
#define OBJECT(...)
#include "runtime/options.inc"
}

}  // namespace sluice
