/* Runs one step of a saved bundle from C.
 *
 *   c_runner BUNDLE IN OUT [EXTENSION]
 *
 * IN: the bytes of all inputs, one after the other. OUT: the bytes of all outputs. EXTENSION: a library of ops. */
#include <sluice/sluice.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the message of a failed call. */
static void check(sluice_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "c_runner: %s\n", sluice_status_message(status));
  sluice_status_destroy(status);
  exit(1);
}

static void fail(const char* what, const char* which) {
  fprintf(stderr, "c_runner: %s: %s\n", which, what);
  exit(1);
}

static sluice_tensor** new_list(size_t count) {
  sluice_tensor** list = calloc(count + 1, sizeof *list);
  if (list == NULL) fail("no memory", "tensors");
  return list;
}

static void destroy_list(sluice_tensor** list, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) sluice_tensor_destroy(list[i]);
  free(list);
}

int main(int argc, char** argv) {
  sluice_engine* engine = NULL;
  sluice_session* session = NULL;
  sluice_engine_options options = SLUICE_ENGINE_OPTIONS_INIT;
  sluice_tensor **inputs, **outputs;
  size_t num_inputs, num_outputs, i;
  FILE* file;

  if (argc < 4) {
    fprintf(stderr, "usage: c_runner BUNDLE IN OUT [EXTENSION]\n");
    return 2;
  }
  options.cores = 1;
  check(sluice_engine_create(&options, &engine));
  if (argc > 4) check(sluice_engine_load_extension(engine, argv[4]));
  check(sluice_session_load(engine, argv[1], NULL, &session));
  num_inputs = sluice_session_num_inputs(session);
  num_outputs = sluice_session_num_outputs(session);
  inputs = new_list(num_inputs);
  outputs = new_list(num_outputs);

  file = fopen(argv[2], "rb");
  if (file == NULL) fail("cannot be read", argv[2]);
  for (i = 0; i < num_inputs; ++i) {
    sluice_port port = SLUICE_PORT_INIT;
    check(sluice_session_input(session, i, &port));
    check(sluice_tensor_create(port.dtype, port.shape, port.rank, &inputs[i]));
    if (fread(sluice_tensor_data(inputs[i]), 1, sluice_tensor_bytes(inputs[i]), file) != sluice_tensor_bytes(inputs[i]))
      fail("too short", argv[2]);
  }
  fclose(file);

  check(sluice_session_run(session, inputs, num_inputs, outputs, num_outputs));

  file = fopen(argv[3], "wb");
  if (file == NULL) fail("cannot be written", argv[3]);
  for (i = 0; i < num_outputs; ++i) {
    sluice_port port = SLUICE_PORT_INIT;
    check(sluice_session_output(session, i, &port));
    fwrite(sluice_tensor_data(outputs[i]), 1, sluice_tensor_bytes(outputs[i]), file);
    printf("%s: %ld elements\n", port.name, (long)sluice_tensor_size(outputs[i]));
  }
  if (fclose(file) != 0) fail("cannot be written", argv[3]);

  destroy_list(inputs, num_inputs);
  destroy_list(outputs, num_outputs);
  sluice_session_destroy(session);
  sluice_engine_destroy(engine);
  return 0;
}
