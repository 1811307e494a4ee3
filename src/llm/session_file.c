/* session_file.c - sessions in files: tokens and key/value cache, so that a long prompt is computed once.
 *
 * Version 1, numbers little-endian:
 *
 *   header      64 bytes, see below
 *   tokens      int32 [n_tokens]
 *   note        n_note_bytes of the caller's own
 *   cache       for each layer the blocks of keys, then those of values: ceil(n_tokens / n_block_positions) of each, as
 *               they stand in memory, with zeros for positions from n_tokens on
 *   checksum    XXH3 (64 bits) of everything before
 *
 * Nothing of a file is used before its size has been compared with what the header says, and its checksum and model
 * have been found right; until then the session is as it was. */
#include "llm/session.h"
#include "tensor/tensor.h"

#include <limits.h>
#include <string.h>
#include <xxhash.h>

static const char MAGIC[8] = {'w', 'e', 'f', 't', 's', 'e', 's', 's'};

enum { VERSION = 1, CHECKSUM_BYTES = 8 };

typedef struct header {
  char magic[8];
  uint32_t version, n_layers;
  char dtype[7]; /* of the cache, "f16"; zeros behind it */
  uint8_t is_exact;
  uint64_t model; /* fingerprint */
  uint64_t key_block_bytes, value_block_bytes;
  uint32_t n_tokens, n_block_positions;
  uint64_t n_note_bytes;
} header;

_Static_assert(sizeof(header) == 64, "the format's header");

/* ---- which model ---- */

/* Pieces of a weight's data stand for all of it: two models that agree in each of these differ in nothing that training
 * leaves alone. */
enum { PIECE_BYTES = 1024, PIECES = 3 };

static void hash_weight(XXH3_state_t *hash, const weft_gguf_tensor *t) {
  XXH3_64bits_update(hash, t->name.data, t->name.n_bytes);
  XXH3_64bits_update(hash, t->shape, sizeof t->shape);
  XXH3_64bits_update(hash, &t->file_type, sizeof t->file_type);
  size_t n = (size_t)t->n_bytes, n_piece = n < PIECE_BYTES ? n : PIECE_BYTES;
  for (size_t i = 0; i < PIECES; i++)
    XXH3_64bits_update(hash, (const char *)t->data + (n - n_piece) / (PIECES - 1) * i, n_piece);
}

static weft_status fingerprint(const weft_model *model, uint64_t *out) {
  XXH3_state_t *hash = XXH3_createState();
  if (!hash) return weft__error(WEFT_ENOMEM, "session: out of memory");
  XXH3_64bits_reset(hash);
  const char *name = model->info.architecture;
  XXH3_64bits_update(hash, name, strlen(name));
  for (size_t i = 0; i < weft_gguf_n_tensors(model->gguf); i++) hash_weight(hash, weft_gguf_tensor_at(model->gguf, i));
  *out = XXH3_64bits_digest(hash);
  XXH3_freeState(hash);
  return WEFT_OK;
}

/* ---- the header ---- */

/* The header that a session of n tokens has. */
static weft_status make_header(const weft_session *s, uint32_t n_tokens, uint64_t n_note_bytes, header *h) {
  weft__kv_layout layout = weft__kv_get_layout(s->cache);
  *h = (header){
      .version = VERSION,
      .is_exact = weft_model_device(s->model)->is_exact,
      .n_layers = (uint32_t)layout.n_layers,
      .key_block_bytes = layout.key_block_bytes,
      .value_block_bytes = layout.value_block_bytes,
      .n_tokens = n_tokens,
      .n_block_positions = WEFT_KV_BLOCK,
      .n_note_bytes = n_note_bytes,
  };
  memcpy(h->magic, MAGIC, sizeof h->magic);
  const char *dtype = weft_dtype_name(layout.dtype);
  memcpy(h->dtype, dtype, strnlen(dtype, sizeof h->dtype - 1));
  return fingerprint(s->model, &h->model);
}

/* ---- saving ---- */

/* A writer and the checksum of what it has written. */
typedef struct output {
  weft__file_writer *writer;
  XXH3_state_t *hash;
} output;

static weft_status put(output *o, const void *data, size_t n_bytes) {
  XXH3_64bits_update(o->hash, data, n_bytes);
  return weft__file_writer_add(o->writer, data, n_bytes);
}

static weft_status put_cache(output *o, const weft_session *s, const header *h) {
  size_t n_bytes[2] = {(size_t)h->key_block_bytes, (size_t)h->value_block_bytes};
  void *block = weft__alloc(n_bytes[0] > n_bytes[1] ? n_bytes[0] : n_bytes[1], 1);
  weft_status status = block ? WEFT_OK : WEFT_ENOMEM;
  for (uint32_t part = 0; part < 2 * h->n_layers && !status; part++)
    for (int64_t b = 0; b < weft__kv_n_blocks(h->n_tokens) && !status; b++) {
      status = weft__kv_read_block(s->cache, 0, (int)part, (int)b, block);
      if (!status) status = put(o, block, n_bytes[part % 2]);
    }
  weft_free(block);
  return status;
}

static weft_status put_all(output *o, const weft_session *s, const header *h, const void *note) {
  weft_status status = put(o, h, sizeof *h);
  if (!status) status = put(o, s->tokens, h->n_tokens * sizeof *s->tokens);
  if (!status && h->n_note_bytes > 0) status = put(o, note, (size_t)h->n_note_bytes);
  if (!status) status = put_cache(o, s, h);
  uint64_t checksum = XXH3_64bits_digest(o->hash);
  return status ? status : weft__file_writer_add(o->writer, &checksum, sizeof checksum);
}

weft_status weft_session_save(const weft_session *session, const char *path, const void *note, size_t n_note_bytes) {
  header h;
  output o = {0};
  weft_status status = make_header(session, (uint32_t)weft_session_length(session), n_note_bytes, &h);
  if (!status) status = weft__file_writer_open(&o.writer, path, WEFT__FILE_PRIVATE);
  if (status) return status;
  o.hash = XXH3_createState();
  if (!o.hash || XXH3_64bits_reset(o.hash) != XXH_OK)
    status = weft__error(WEFT_ENOMEM, "%s: out of memory", path);
  else
    status = put_all(&o, session, &h, note);
  XXH3_freeState(o.hash);
  if (!status) return weft__file_writer_commit(o.writer);
  weft__file_writer_discard(o.writer);
  return status;
}

/* ---- loading ---- */

/* The bytes that a file with this header has; false if they are more than can be. */
static bool expected_bytes(const header *h, size_t *n_bytes) {
  size_t n_block, n_layer, n_cache, n_tokens;
  size_t total = sizeof *h + CHECKSUM_BYTES;
  return weft__add_size((size_t)h->key_block_bytes, (size_t)h->value_block_bytes, &n_block) &&
         weft__mul_size(n_block, (size_t)weft__kv_n_blocks(h->n_tokens), &n_layer) &&
         weft__mul_size(n_layer, h->n_layers, &n_cache) && weft__mul_size(h->n_tokens, sizeof(int32_t), &n_tokens) &&
         weft__add_size(total, n_cache, &total) && weft__add_size(total, n_tokens, &total) &&
         weft__add_size(total, (size_t)h->n_note_bytes, &total) && (*n_bytes = total, true);
}

static weft_status check_version(const weft__file_map *map, const char *path) {
  uint32_t version;
  if (map->n_bytes < sizeof(header) || memcmp(map->data, MAGIC, sizeof MAGIC) != 0)
    return weft__error(WEFT_EFORMAT, "%s: is no session file (name one that weft saved, or a new one)", path);
  memcpy(&version, map->data + sizeof MAGIC, sizeof version);
  if (version == VERSION) return WEFT_OK;
  return weft__error(WEFT_EUNSUPPORTED, "%s: is of version %u (known: %d; save it anew)", path, (unsigned)version,
                     VERSION);
}

static weft_status check_size_and_sum(const weft__file_map *map, const header *h, const char *path) {
  size_t n_expected;
  uint64_t checksum;
  if (!expected_bytes(h, &n_expected) || n_expected != map->n_bytes)
    return weft__error(WEFT_EFORMAT, "%s: is cut or damaged: it has %zu bytes (delete it, and it is made anew)", path,
                       map->n_bytes);
  memcpy(&checksum, map->data + map->n_bytes - CHECKSUM_BYTES, sizeof checksum);
  if (checksum != XXH3_64bits(map->data, map->n_bytes - CHECKSUM_BYTES))
    return weft__error(WEFT_EFORMAT, "%s: is damaged: its checksum is wrong (delete it, and it is made anew)", path);
  return WEFT_OK;
}

/* Compares with what this session would write. */
static weft_status check_owner(const weft_session *s, const header *h, const char *path) {
  header own;
  weft_status status = make_header(s, h->n_tokens, h->n_note_bytes, &own);
  if (status) return status;
  if (own.model != h->model)
    return weft__error(WEFT_EINVAL, "%s: was saved with another model (use that one, or another session file)", path);
  if (memcmp(own.dtype, h->dtype, sizeof own.dtype) != 0)
    return weft__error(WEFT_EINVAL, "%s: was saved with a %.*s cache, this one is %s (use the same --kv)", path,
                       (int)sizeof h->dtype, h->dtype, own.dtype);
  if (own.is_exact != h->is_exact)
    return weft__error(WEFT_EINVAL, "%s: was saved %s --exact (run so, or use another session file)", path,
                       h->is_exact ? "with" : "without");
  if (memcmp(&own, h, sizeof own) != 0)
    return weft__error(WEFT_EUNSUPPORTED, "%s: was saved with another layout of the cache (delete it)", path);
  return WEFT_OK;
}

static weft_status check_tokens(const weft_session *s, const int32_t *tokens, const header *h, const char *path) {
  for (uint32_t i = 0; i < h->n_tokens; i++)
    if (tokens[i] < 0 || tokens[i] >= s->model->info.n_vocab)
      return weft__error(WEFT_EFORMAT, "%s: token %d is outside the vocabulary of %d", path, tokens[i],
                         s->model->info.n_vocab);
  return WEFT_OK;
}

/* Puts the blocks of the first `length` positions into the cache; `data` is where the file's begin. */
static weft_status take_cache(weft_session *s, const header *h, const unsigned char *data, int length) {
  const size_t n_bytes[2] = {(size_t)h->key_block_bytes, (size_t)h->value_block_bytes};
  size_t n_saved = (size_t)weft__kv_n_blocks(h->n_tokens), n_kept = (size_t)weft__kv_n_blocks(length);
  weft_status status = weft__kv_resize(s->cache, 0, length);
  for (uint32_t part = 0; part < 2 * h->n_layers && !status; part++) {
    for (size_t b = 0; b < n_kept && !status; b++)
      status = weft__kv_write_block(s->cache, 0, (int)part, (int)b, data + b * n_bytes[part % 2]);
    data += n_saved * n_bytes[part % 2];
  }
  if (status) weft_session_truncate(s, 0);
  return status;
}

/* The file is right: from here on only the device can fail.  A context that is smaller than the file keeps what fits. */
static weft_status take(weft_session *s, const header *h, const weft__file_map *map, const char *path, char **note) {
  const unsigned char *data = map->data + sizeof *h;
  size_t n_token_bytes = h->n_tokens * sizeof(int32_t);
  int n_ctx = weft_session_n_ctx(s), length = h->n_tokens < (uint32_t)n_ctx ? (int)h->n_tokens : n_ctx;
  weft_status status = check_tokens(s, (const int32_t *)(const void *)data, h, path);
  char *copy = NULL;
  if (!status && note) {
    copy = weft__dup(data + n_token_bytes, (size_t)h->n_note_bytes);
    if (!copy) status = WEFT_ENOMEM;
  }
  if (!status) status = take_cache(s, h, data + n_token_bytes + h->n_note_bytes, length);
  if (status) {
    weft_free(copy);
    return status;
  }
  memcpy(s->tokens, data, (size_t)length * sizeof *s->tokens);
  if (note) *note = copy;
  return WEFT_OK;
}

weft_status weft_session_load(weft_session *session, const char *path, char **note, size_t *n_note_bytes) {
  weft__file_map map;
  header h;
  weft_status status = weft__file_map_open(&map, path);
  if (status) return status;
  status = check_version(&map, path);
  if (!status) {
    memcpy(&h, map.data, sizeof h);
    status = check_size_and_sum(&map, &h, path);
    if (!status) status = check_owner(session, &h, path);
    if (!status) status = take(session, &h, &map, path, note);
    if (!status && n_note_bytes) *n_note_bytes = (size_t)h.n_note_bytes;
  }
  weft__file_map_close(&map);
  return status;
}
