/* A model of one f32 input on a GPU, in C: one call from memory of the host to memory of the host.
     gpu_c model.inkle [device] */
#include <inkle.h>
#include <stdio.h>
#include <stdlib.h>

static void check(inkle_status status) {
  if (status == INKLE_OK) return;
  fprintf(stderr, "error: %s: %s\n", inkle_status_name(status), inkle_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  inkle_program* program = NULL;
  inkle_results* results = NULL;
  inkle_info info;
  inkle_value x = {INKLE_TENSOR, 0, {NULL, INKLE_F32, 0, NULL, NULL}}, y;
  size_t count = 1, i;
  int32_t d;
  if (argc < 2) {
    fprintf(stderr, "usage: gpu_c model.inkle [device]\n");
    return 1;
  }
  check(inkle_load_on(argv[1], argc > 2 ? argv[2] : "cuda", NULL, &program));
  check(inkle_input_info(program, 0, &info));
  for (d = 0; d < info.rank; ++d) count *= (size_t)info.least[d];
  x.tensor.data = calloc(count + 1, sizeof(float));
  x.tensor.rank = info.rank;
  x.tensor.sizes = info.least;
  if (x.tensor.data == NULL) return 1;
  check(inkle_results_new(&results));
  check(inkle_run(program, &x, 1, results));
  printf("%s for %s\n", inkle_program_device(program), inkle_program_target(program));
  for (i = 0; i < inkle_result_count(results); ++i) {
    check(inkle_result(results, i, &y));
    printf("result %d: %s of rank %d\n", (int)i, inkle_dtype_name(y.tensor.dtype), (int)y.tensor.rank);
  }
  free(x.tensor.data);
  inkle_results_release(results);
  inkle_program_release(program);
  return 0;
}
