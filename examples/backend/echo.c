/* echo: a foreign backend that computes 2-D convolutions and relu by simple loops. docs/backends.md walks through it.
 *
 *   cc -std=c99 -O2 -shared -fPIC -I include -o libsluice_echo.so examples/backend/echo.c -lm
 *
 * It knows two options. precision: fp32, or int8, which rounds what a convolution reads and gives to 255 steps;
 * calibration: of int8, a file with one number, the largest magnitude that occurs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sluice/offload.h"

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define PER_THREAD _Thread_local
#else
#define PER_THREAD __thread
#endif

/* What is left of the cluster when compile() has returned: everything that run() needs, in memory of its own. */
typedef struct {
  int is_relu;
  int x, weight, bias, y; /* numbers of values; -1: none */
  int64_t stride[2], padding[2], dilation[2], groups;
} step;
typedef struct {
  sluice_offload_type type;
  int64_t shape[8];
  size_t items;
} value;
typedef struct {
  step* steps;
  value* values;
  int* outputs;
  size_t num_steps, num_values, num_inputs, num_outputs;
  float unit; /* of int8; 0: it does not round */
} compiled;

/* Texts that functions return stay valid until the next call on the thread. */
static PER_THREAD char text[256];
static const char* say(const char* what, const char* got) {
  snprintf(text, sizeof text, "%s: %s", what, got);
  return text;
}

static const sluice_offload_attribute* attribute(const sluice_offload_node* node, const char* name) {
  for (size_t i = 0; i < node->num_attributes; ++i)
    if (strcmp(node->attributes[i]->name, name) == 0) return node->attributes[i];
  return NULL;
}

static int pair(const sluice_offload_node* node, const char* name, int64_t to[2]) {
  const sluice_offload_attribute* found = attribute(node, name);
  if (found == NULL || found->kind != SLUICE_OFFLOAD_INTEGERS || found->count != 2) return 0;
  memcpy(to, found->integers, 2 * sizeof to[0]);
  return 1;
}

static int is_float(const sluice_offload_type* type) { return strcmp(type->dtype, "float32") == 0; }

static const char* supports(const sluice_offload_graph* one) {
  const sluice_offload_node* node = one->nodes[0];
  const sluice_offload_type* x = one->values[node->inputs[0]];
  if (strcmp(node->op, "conv") != 0 && strcmp(node->op, "relu") != 0) return "only conv and relu";
  if (!is_float(x)) return say("only float32", x->dtype);
  if (x->rank > 8) return "more than 8 axes";
  if (node->op[0] == 'c' && x->rank != 4) return "only 2-D convolutions";
  return NULL;
}

static void destroy(void* handle) {
  compiled* code = handle;
  if (code == NULL) return;
  free(code->steps);
  free(code->values);
  free(code->outputs);
  free(code);
}

/* Reads the options into `code`. */
static const char* read_options(const sluice_offload_graph* graph, compiled* code) {
  const char *precision = "fp32", *calibration = NULL;
  for (size_t i = 0; i < graph->num_options; ++i) {
    const sluice_offload_option* option = graph->options[i];
    if (strcmp(option->name, "precision") == 0)
      precision = option->value;
    else if (strcmp(option->name, "calibration") == 0)
      calibration = option->value;
    else
      return say("unknown option", option->name);
  }
  if (strcmp(precision, "fp32") == 0) return NULL;
  if (strcmp(precision, "int8") != 0) return say("precision must be fp32 or int8", precision);
  if (calibration == NULL) return "precision int8 needs a calibration";
  FILE* file = fopen(calibration, "r");
  double largest = 0;
  const int read = file != NULL && fscanf(file, "%lf", &largest) == 1;
  if (file != NULL) fclose(file);
  if (!read || !(largest > 0)) return say("no calibration in", calibration);
  code->unit = (float)(largest / 127);
  return NULL;
}

static const char* read_node(const sluice_offload_node* node, step* to) {
  const sluice_offload_attribute* groups = attribute(node, "groups");
  to->is_relu = strcmp(node->op, "relu") == 0;
  to->x = node->inputs[0];
  to->y = node->outputs[0];
  if (to->is_relu) return NULL;
  to->weight = node->inputs[1];
  to->bias = node->num_inputs > 2 ? node->inputs[2] : -1;
  if (!pair(node, "stride", to->stride) || !pair(node, "padding", to->padding) || !pair(node, "dilation", to->dilation) ||
      groups == NULL)
    return "a convolution without stride, padding, dilation and groups";
  to->groups = groups->integer;
  return NULL;
}

static const char* compile(const sluice_offload_graph* graph, void** handle) {
  compiled* code = calloc(1, sizeof *code);
  if (code == NULL) return "no memory";
  code->steps = calloc(graph->num_nodes, sizeof *code->steps);
  code->values = calloc(graph->num_values, sizeof *code->values);
  code->outputs = calloc(graph->num_outputs + 1, sizeof *code->outputs);
  const char* error = code->steps == NULL || code->values == NULL || code->outputs == NULL ? "no memory" : NULL;
  if (error == NULL) error = read_options(graph, code);
  for (size_t i = 0; error == NULL && i < graph->num_nodes; ++i) error = read_node(graph->nodes[i], &code->steps[i]);
  if (error != NULL) {
    destroy(code);
    return error;
  }
  code->num_steps = graph->num_nodes;
  code->num_values = graph->num_values;
  code->num_inputs = graph->num_inputs;
  code->num_outputs = graph->num_outputs;
  for (size_t i = 0; i < graph->num_outputs; ++i) code->outputs[i] = graph->outputs[i];
  for (size_t i = 0; i < graph->num_values; ++i) {
    value* to = &code->values[i];
    to->items = 1;
    for (size_t d = 0; d < graph->values[i]->rank; ++d) to->items *= (size_t)(to->shape[d] = graph->values[i]->shape[d]);
    to->type = *graph->values[i];
    to->type.dtype = "float32";
    to->type.shape = to->shape;
  }
  *handle = code;
  return NULL;
}

static const sluice_offload_type* output_type(void* handle, size_t output) {
  const compiled* code = handle;
  return &code->values[code->outputs[output]].type;
}

static float rounded(float x, float unit) {
  if (unit == 0) return x;
  const float steps = rintf(x / unit);
  return (steps > 127 ? 127 : steps < -128 ? -128 : steps) * unit;
}

static void convolve(const compiled* code, const step* s, float** at) {
  const int64_t *in = code->values[s->x].shape, *w = code->values[s->weight].shape, *out = code->values[s->y].shape;
  const float *x = at[s->x], *weight = at[s->weight], *bias = s->bias < 0 ? NULL : at[s->bias];
  float* y = at[s->y];
  const int64_t channels = w[1], per_group = out[1] / s->groups;
  for (int64_t n = 0; n < out[0]; ++n)
    for (int64_t o = 0; o < out[1]; ++o)
      for (int64_t i = 0; i < out[2]; ++i)
        for (int64_t j = 0; j < out[3]; ++j) {
          double sum = bias == NULL ? 0 : bias[o];
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t k = 0; k < w[2]; ++k)
              for (int64_t l = 0; l < w[3]; ++l) {
                const int64_t row = i * s->stride[0] + k * s->dilation[0] - s->padding[0];
                const int64_t column = j * s->stride[1] + l * s->dilation[1] - s->padding[1];
                if (row < 0 || row >= in[2] || column < 0 || column >= in[3]) continue;
                const int64_t channel = o / per_group * channels + c;
                sum += (double)rounded(x[((n * in[1] + channel) * in[2] + row) * in[3] + column], code->unit) *
                       weight[((o * channels + c) * w[2] + k) * w[3] + l];
              }
          *y++ = rounded((float)sum, code->unit);
        }
}

static const char* run(void* handle, const void* const* inputs, void* const* outputs) {
  const compiled* code = handle;
  float** at = calloc(code->num_values, sizeof *at); /* where each value lies */
  const char* error = at == NULL ? "no memory" : NULL;
  for (size_t i = 0; error == NULL && i < code->num_inputs; ++i) at[i] = (float*)inputs[i];
  for (size_t o = 0; error == NULL && o < code->num_outputs; ++o) at[code->outputs[o]] = outputs[o];
  for (size_t s = 0; error == NULL && s < code->num_steps; ++s) {
    const step* now = &code->steps[s];
    const size_t items = code->values[now->y].items;
    if (at[now->y] == NULL) at[now->y] = malloc((items + 1) * sizeof(float));
    if (at[now->y] == NULL) error = "no memory";
    if (error == NULL && !now->is_relu) convolve(code, now, at);
    for (size_t i = 0; error == NULL && now->is_relu && i < items; ++i)
      at[now->y][i] = at[now->x][i] < 0 ? 0 : at[now->x][i];
  }
  for (size_t v = code->num_inputs; at != NULL && v < code->num_values; ++v) { /* what no output is */
    size_t o = 0;
    while (o < code->num_outputs && (size_t)code->outputs[o] != v) ++o;
    if (o == code->num_outputs) free(at[v]);
  }
  free(at);
  return error;
}

const sluice_offload_backend* sluice_offload(void) {
  static const sluice_offload_backend backend = {SLUICE_OFFLOAD_ABI, sizeof backend, "echo",  "1.0", 0, supports,
                                                 compile,            output_type,    run,     destroy};
  return &backend;
}
