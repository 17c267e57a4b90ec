/* Backends that are wrong, each in one way: FAULT says which. What is right is a backend that takes relu. */
#include <stdlib.h>
#include <string.h>

#include "sluice/offload.h"

#ifndef FAULT
#define FAULT 0
#endif
#ifndef NAME
#define NAME "faulty"
#endif

const int64_t wrong_shape[] = {7};
static sluice_offload_type type;
static size_t items;

static const char* supports(const sluice_offload_graph* one) {
#if FAULT == 4
  abort();
#endif
  return strcmp(one->nodes[0]->op, "relu") == 0 ? "" : "only relu";
}

static const char* compile(const sluice_offload_graph* graph, void** handle) {
  (void)graph;
  (void)handle;
#if FAULT == 5
  return "out of licences";
#endif
  static int64_t shape[8];
  type = *graph->values[graph->outputs[0]];
  items = 1;
  for (size_t d = 0; d < type.rank; ++d) items *= (size_t)(shape[d] = type.shape[d]);
  type.shape = shape;
  type.dtype = "float32";
#if FAULT == 6
  type.shape = wrong_shape;
  type.rank = 1;
#endif
#if FAULT != 7
  *handle = &type;
#endif
  return NULL;
}

static const sluice_offload_type* output_type(void* handle, size_t output) {
  (void)output;
  return handle;
}

static const char* run(void* handle, const void* const* inputs, void* const* outputs) {
  (void)handle;
#if FAULT == 8
  return "the device is on fire";
#endif
  for (size_t i = 0; i < items; ++i) ((float*)outputs[0])[i] = ((const float*)inputs[0])[i] < 0 ? 0 : ((const float*)inputs[0])[i];
  return NULL;
}

static void destroy(void* handle) { (void)handle; }

#if FAULT == 1
const int sluice_offload_is_not_here = 1;
#else
const sluice_offload_backend* sluice_offload(void) {
  static sluice_offload_backend backend = {SLUICE_OFFLOAD_ABI, sizeof backend, NAME,  "0", 0, supports,
                                           compile,            output_type,    run,   destroy};
#if FAULT == 2
  backend.abi = 7;
#elif FAULT == 3
  backend.run = NULL;
#elif FAULT == 9
  backend.size = 16;
#elif FAULT == 10
  return NULL;
#elif FAULT == 11
  backend.name = "";
#endif
  return &backend;
}
#endif
