/* Sentence embeddings in C: what embeddings.cpp does, line for line the same output.
     embeddings model.inkle vocab.txt < sentences.txt */
#include <ctype.h>
#include <inkle.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int is_right, const char* message) {
  if (is_right) return;
  fprintf(stderr, "error: %s\n", message);
  exit(1);
}

static void* memory(void* old, size_t bytes) {
  void* const made = realloc(old, bytes + 1);
  check(made != NULL, "out of memory");
  return made;
}

/* All lines of a file, without their ends. */
typedef struct {
  char** lines;
  size_t count;
} text_lines;

static text_lines read_lines(FILE* file) {
  text_lines all = {NULL, 0};
  char line[4096];
  while (fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\r\n")] = '\0';
    all.lines = memory(all.lines, (all.count + 1) * sizeof *all.lines);
    all.lines[all.count] = strcpy(memory(NULL, strlen(line)), line);
    ++all.count;
  }
  return all;
}

/* The vocabulary, sorted by text. */
typedef struct {
  const char* text;
  int64_t number;
} word;

static int compare(const void* a, const void* b) {
  return strcmp(((const word*)a)->text, ((const word*)b)->text);
}

static word* read_vocabulary(const char* path, size_t* count) {
  FILE* const file = fopen(path, "r");
  check(file != NULL, "the vocabulary cannot be read");
  const text_lines all = read_lines(file);
  fclose(file);
  word* const words = memory(NULL, all.count * sizeof *words);
  for (size_t i = 0; i < all.count; ++i) words[i] = (word){all.lines[i], (int64_t)i};
  free(all.lines);
  qsort(words, all.count, sizeof *words, compare);
  *count = all.count;
  return words;
}

/* -1 if there is no such word. */
static int64_t find(const word* words, size_t count, const char* text) {
  const word wanted = {text, 0};
  const word* const found = bsearch(&wanted, words, count, sizeof *words, compare);
  return found == NULL ? -1 : found->number;
}

static int64_t must_find(const word* words, size_t count, const char* text) {
  const int64_t number = find(words, count, text);
  check(number >= 0, "the vocabulary lacks [PAD], [UNK], [CLS] or [SEP]");
  return number;
}

/* The longest pieces that the vocabulary has, from the left; [UNK] if there are none. At most
   `room` of them are kept. */
static size_t add_word(const word* words, size_t count, const char* text, size_t size, int64_t* ids,
                       size_t room) {
  char piece[4100];
  size_t made = 0;
  for (size_t begin = 0, length; begin < size; begin += length) {
    int64_t number = -1;
    for (length = size - begin; length > 0 && number < 0; --length) {
      snprintf(piece, sizeof piece, "%s%.*s", begin > 0 ? "##" : "", (int)length, text + begin);
      number = find(words, count, piece);
    }
    if (number < 0) {
      if (room > 0) ids[0] = must_find(words, count, "[UNK]");
      return room > 0 ? 1 : 0;
    }
    ++length; /* the loop has counted once too often */
    if (made < room) ids[made++] = number;
  }
  return made;
}

/* Lower case, punctuation apart, between [CLS] and [SEP]. */
static size_t tokens(const word* words, size_t count, char* text, int64_t* ids, size_t most) {
  size_t made = 0;
  ids[made++] = must_find(words, count, "[CLS]");
  for (size_t at = 0; text[at] != '\0';) {
    size_t size = 0;
    while (isspace((unsigned char)text[at])) ++at;
    while (text[at + size] != '\0' && !isspace((unsigned char)text[at + size])) {
      const int is_mark = ispunct((unsigned char)text[at + size]);
      if (is_mark && size > 0) break;
      text[at + size] = (char)tolower((unsigned char)text[at + size]);
      ++size;
      if (is_mark) break;
    }
    made += add_word(words, count, text + at, size, ids + made, most - 1 - made);
    at += size;
  }
  ids[made++] = must_find(words, count, "[SEP]");
  return made;
}

static void must(inkle_status status) { check(status == INKLE_OK, inkle_last_error()); }

static double product(const float* a, const float* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += (double)a[i] * b[i];
  return sum;
}

int main(int argc, char** argv) {
  check(argc == 3, "usage: embeddings model.inkle vocab.txt < sentences.txt");
  inkle_program* program = NULL;
  inkle_results* results = NULL;
  inkle_info info;
  must(inkle_load(argv[1], &program));
  must(inkle_results_new(&results));
  must(inkle_input_info(program, 0, &info));
  const size_t most = info.most[1] > 4096 ? 4096 : (size_t)info.most[1];

  size_t word_count = 0;
  word* const words = read_vocabulary(argv[2], &word_count);
  const text_lines texts = read_lines(stdin);
  int64_t* const rows = memory(NULL, texts.count * most * sizeof *rows);
  size_t* const lengths = memory(NULL, texts.count * sizeof *lengths);
  size_t length = 0;
  for (size_t i = 0; i < texts.count; ++i) {
    char* const copy = strcpy(memory(NULL, strlen(texts.lines[i])), texts.lines[i]);
    lengths[i] = tokens(words, word_count, copy, rows + i * most, most);
    if (lengths[i] > length) length = lengths[i];
    free(copy);
  }
  int64_t* const ids = memory(NULL, texts.count * length * sizeof *ids);
  int64_t* const mask = memory(NULL, texts.count * length * sizeof *mask);
  for (size_t i = 0; i < texts.count; ++i) {
    for (size_t t = 0; t < length; ++t) {
      const int is_there = t < lengths[i];
      ids[i * length + t] = is_there ? rows[i * most + t] : must_find(words, word_count, "[PAD]");
      mask[i * length + t] = is_there;
    }
  }

  const int64_t sizes[2] = {(int64_t)texts.count, (int64_t)length};
  const inkle_value inputs[2] = {{INKLE_TENSOR, 0, {ids, INKLE_I64, 2, sizes, NULL}},
                                 {INKLE_TENSOR, 0, {mask, INKLE_I64, 2, sizes, NULL}}};
  inkle_value result;
  must(inkle_run(program, inputs, 2, results));
  must(inkle_result(results, 0, &result));
  const size_t width = (size_t)result.tensor.sizes[1];
  float* const vectors = memory(NULL, texts.count * width * sizeof *vectors);
  const inkle_tensor to = {vectors, INKLE_F32, 2, result.tensor.sizes, NULL};
  must(inkle_copy(&result.tensor, &to));

  for (size_t a = 0; a < texts.count; ++a) {
    const float* const mine = vectors + a * width;
    size_t best = a;
    double highest = -2;
    for (size_t b = 0; b < texts.count; ++b) {
      const float* const other = vectors + b * width;
      const double norms = product(mine, mine, width) * product(other, other, width);
      const double cosine = product(mine, other, width) / sqrt(norms);
      if (b == a || cosine < highest) continue;
      highest = cosine;
      best = b;
    }
    printf("%s\n  %.4f %s\n", texts.lines[a], highest, texts.lines[best]);
  }

  for (size_t i = 0; i < texts.count; ++i) free(texts.lines[i]);
  for (size_t i = 0; i < word_count; ++i) free((char*)words[i].text);
  free(texts.lines);
  free(words);
  free(rows);
  free(lengths);
  free(ids);
  free(mask);
  free(vectors);
  inkle_results_release(results);
  inkle_program_release(program);
  return 0;
}
