#pragma once
// The whole C++ API, in namespace sluice::api.
#include "diagnostics.h"
#include "dtype.h"
#include "engine.h"
#include "error.h"
#include "export.h"
#include "plan.h"
#include "session.h"
#include "sluice/version.h"
#include "tensor.h"
#include "trace.h"
