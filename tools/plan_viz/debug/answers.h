#pragma once
// The answers of `plan-viz debug`, as text and as JSON.
#include <boost/json.hpp>
#include <string>

#include "include/sluice/tensor.h"
#include "runtime/debug/debugger.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

struct Answer {
  std::string text;
  boost::json::object json;
};

Answer answer_of(const Breakpoint& breakpoint, const plan::Plan& plan);
// The place where it stopped, and who is next.
Answer answer_of(const Stop& stop, Debugger& debugger);
Answer actors_answer(Debugger& debugger, const TextOptions& options);
Answer registers_answer(Debugger& debugger, const TextOptions& options);
// The slots of a register, and the value of one.
Answer slots_answer(Debugger& debugger, int reg);
Answer value_answer(const std::string& name, const api::Tensor& value);

}  // namespace sluice::plan_viz
