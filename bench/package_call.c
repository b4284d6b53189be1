/* What a package costs a C program: bench/packages.py compiles and runs this.
     package_call overhead FILE     us of a call on an f32 vector of 8, the least mean of 1000
     package_call memory FILE N L   KiB of private memory before and after the load, and after a call
                                    on N times L integers; then waits for a line */
#include <inkle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void must(inkle_status status) {
  if (status == INKLE_OK) return;
  fprintf(stderr, "error: %s\n", inkle_last_error());
  exit(1);
}

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static long private_kib(void) {
  FILE* const file = fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  long all = 0;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    long kib = 0;
    if (sscanf(line, "Private_Clean: %ld", &kib) == 1) all += kib;
    if (sscanf(line, "Private_Dirty: %ld", &kib) == 1) all += kib;
  }
  if (file != NULL) fclose(file);
  return all;
}

static void overhead(const char* path) {
  inkle_program* program = NULL;
  inkle_results* results = NULL;
  float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t sizes[1] = {8};
  const inkle_value input = {INKLE_TENSOR, 0, {data, INKLE_F32, 1, sizes, NULL}};
  double best = 1e30;
  must(inkle_load(path, &program));
  must(inkle_results_new(&results));
  for (int block = 0; block < 2000; ++block) {
    const double start = microseconds();
    for (int i = 0; i < 1000; ++i) must(inkle_run(program, &input, 1, results));
    const double each = (microseconds() - start) / 1000;
    if (each < best) best = each;
  }
  printf("%.3f\n", best);
  inkle_results_release(results);
  inkle_program_release(program);
}

static void memory(const char* path, int64_t rows, int64_t columns) {
  inkle_program* program = NULL;
  inkle_results* results = NULL;
  int64_t* const ones = malloc((size_t)(rows * columns) * sizeof *ones);
  const int64_t sizes[2] = {rows, columns};
  const inkle_value one = {INKLE_TENSOR, 0, {ones, INKLE_I64, 2, sizes, NULL}};
  const inkle_value inputs[2] = {one, one};
  if (ones == NULL) exit(1);
  for (int64_t i = 0; i < rows * columns; ++i) ones[i] = 1;
  const long before = private_kib();
  const double start = microseconds();
  must(inkle_load(path, &program));
  const double took = microseconds() - start;
  const long loaded = private_kib();
  must(inkle_results_new(&results));
  must(inkle_run(program, inputs, inkle_input_count(program), results));
  printf("%ld %ld %ld %.1f\n", before, loaded, private_kib(), took);
  fflush(stdout);
  (void)getchar();
  inkle_results_release(results);
  inkle_program_release(program);
  free(ones);
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "overhead") == 0) {
    overhead(argv[2]);
  } else if (argc == 5 && strcmp(argv[1], "memory") == 0) {
    memory(argv[2], atoll(argv[3]), atoll(argv[4]));
  } else {
    fprintf(stderr, "usage: package_call overhead FILE | memory FILE ROWS COLUMNS\n");
    return 2;
  }
  return 0;
}
