#pragma once
// Backends that a program is linked with, beside those that are loaded (streams/backend.h).
#include "streams/backend.h"

namespace sluice {

// Makes it the backend of its kind; nothing when it is that already. Throws kValue when the kind is of the core or has
// another backend. Thread-safe.
void add_backend(const Backend& backend);

}  // namespace sluice
