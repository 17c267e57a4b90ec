#pragma once
// Errors of the engine, in words for clients.
#include <string>

#include "serving/core/error.h"
#include "sluice/error.h"

namespace sluice::serving {

// Without paths: where a message names a file, its name stays.
std::string client_text(const std::string& text);
// After such an error a session cannot go on.
bool is_fatal(const api::Error& error);
Error error_of_submission(const std::string& where, const api::Error& error);
Error error_of_step(const std::string& where, const api::Error& error);
// Ends a failed loading: throws the Error in flight, and everything else, as an Error.
[[noreturn]] void rethrow_as_error(const std::string& where);

}  // namespace sluice::serving
