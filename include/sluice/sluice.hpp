#pragma once
// The whole C++ API, in namespace sluice::api.
#include "dtype.h"
#include "diagnostics.h"
#include "engine.h"
#include "error.h"
#include "export.h"
#include "plan.h"
#include "session.h"
#include "tensor.h"
#include "sluice/version.h"
