#pragma once
#include "serving/program/arguments.h"

namespace sluice::serving {

// Serves until a signal says otherwise. Prints a line for each endpoint on stdout. Returns the exit status.
int serve(const Arguments& args);

}  // namespace sluice::serving
