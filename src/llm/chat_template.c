/* chat_template.c - from a conversation to token ids.
 *
 * Templates are programs, which are not run here: a format is known by the marks of its turns, and what a template of
 * that format says besides, a default system message or a date, is read out of its text.  To add a format, add its row
 * and the function that puts turns in order. */
#include "llm/model.h"

#include <string.h>

enum { MAX_MARKS = 3 };

typedef struct rendering rendering;

/* A turn is before_role, the role, before_content, what was said, after_content. */
typedef struct chat_format {
  const char *name;
  const char *marks[MAX_MARKS]; /* all in the template, and special tokens of the vocabulary */
  const char *before_role, *before_content, *after_content;
  bool trims; /* white space around what was said is left out */
  weft_status (*render)(rendering *r, const char *template, const weft_chat_message *messages, size_t n);
} chat_format;

/* A conversation as text, and which bytes of it were written by somebody. */
struct rendering {
  const chat_format *format;
  weft__bytes text;
  weft__bytes spans; /* weft_text_span[] */
};

static weft_status add_text(rendering *r, const char *text) { return weft__bytes_add(&r->text, text, strlen(text)); }

static weft_status add_literal(rendering *r, const char *text, size_t n_bytes) {
  weft_text_span span = {r->text.n, n_bytes};
  weft_status status = weft__bytes_add(&r->text, text, n_bytes);
  return status || n_bytes == 0 ? status : weft__bytes_add(&r->spans, &span, sizeof span);
}

/* Bytes of the white space that n bytes start with, as Python's strip() sees it; 0 if there is none. */
static size_t leading_space(const char *text, size_t n) {
  static const char *const wide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\xA8",
                                     "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
  if (n == 0) return 0;
  unsigned char c = (unsigned char)text[0];
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
  for (size_t i = 0; i < WEFT_COUNT(wide); i++)
    if (n >= strlen(wide[i]) && !memcmp(text, wide[i], strlen(wide[i]))) return strlen(wide[i]);
  /* U+2000 to U+200A */
  bool is_en_quad = n >= 3 && c == 0xE2 && text[1] == '\x80' && (unsigned char)text[2] <= 0x8A && text[2] & '\x80';
  return is_en_quad ? 3 : 0;
}

/* Whether n bytes end with white space, of *n_space bytes. */
static bool ends_with_space(const char *text, size_t n, size_t *n_space) {
  for (*n_space = 1; *n_space <= 3 && *n_space <= n; ++*n_space)
    if (leading_space(text + n - *n_space, *n_space) == *n_space) return true;
  return false;
}

static weft_status add_trimmed(rendering *r, const char *text) {
  size_t n = strlen(text), n_space;
  while ((n_space = leading_space(text, n)) > 0) text += n_space, n -= n_space;
  while (ends_with_space(text, n, &n_space)) n -= n_space;
  return add_literal(r, text, n);
}

/* What comes before somebody's words. */
static weft_status begin_turn(rendering *r, const char *role) {
  weft_status status = add_text(r, r->format->before_role);
  if (!status) status = add_literal(r, role, strlen(role));
  return status ? status : add_text(r, r->format->before_content);
}

/* The words, and what comes behind them. */
static weft_status end_turn(rendering *r, const char *content) {
  weft_status status = r->format->trims ? add_trimmed(r, content) : add_literal(r, content, strlen(content));
  return status ? status : add_text(r, r->format->after_content);
}

static weft_status add_turn(rendering *r, const char *role, const char *content) {
  weft_status status = begin_turn(r, role);
  return status ? status : end_turn(r, content);
}

static weft_status add_turns(rendering *r, const weft_chat_message *messages, size_t n) {
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < n && !status; i++) status = add_turn(r, messages[i].role, messages[i].content);
  return status;
}

static bool starts_with_system(const weft_chat_message *messages, size_t n) {
  return n > 0 && !strcmp(messages[0].role, "system");
}

/* ---- literals in a template ---- */

/* Undoes the escapes of a template's string literal in place (\n, \t, \', \", \\); returns the new length. */
static size_t unescape(char *text, size_t n) {
  size_t out = 0;
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    if (c == '\\' && i + 1 < n) {
      c = text[++i];
      if (c == 'n')
        c = '\n';
      else if (c == 't')
        c = '\t';
    }
    text[out++] = c;
  }
  return out;
}

/* The quote that opens the literal around `at`: the last one before it that is not escaped. */
static char opening_quote(const char *template, const char *at) {
  while (at > template) {
    at--;
    if ((*at == '\'' || *at == '"') && (at == template || at[-1] != '\\')) return *at;
  }
  return 0;
}

/* Whether the literal goes on from `text` to `end`: its quote does not stand between, unescaped. */
static bool is_one_literal(const char *text, const char *end, char quote) {
  for (; text < end; text++) {
    if (*text == '\\')
      text++;
    else if (*text == quote)
      return false;
  }
  return true;
}

/* A copy of the literal's text from `start` to `end`, unescaped; NULL if memory ran out. */
static char *copy_literal(const char *start, const char *end) {
  char *text = weft__dup(start, (size_t)(end - start));
  if (text) text[unescape(text, (size_t)(end - start))] = 0;
  return text;
}

/* Adds the template's literal from `start` on, up to its closing quote. */
static weft_status add_literal_from(rendering *r, const char *template, const char *start) {
  char quote = opening_quote(template, start);
  const char *end = start;
  while (*end && *end != quote) end += *end == '\\' && end[1] ? 2 : 1;
  char *text = copy_literal(start, end);
  weft_status status = text ? add_text(r, text) : WEFT_ENOMEM;
  weft_free(text);
  return status;
}

/* ---- ChatML ---- */

/* The text between "<|im_start|>system\n" and "<|im_end|>" if the template spells out both in one literal; the newline
 * may be written as itself or escaped. */
static weft_status add_default_system(rendering *r, const char *template) {
  for (const char *at = template; (at = strstr(at, "<|im_start|>system"));) {
    char quote = opening_quote(template, at);
    at += strlen("<|im_start|>system");
    const char *message = *at == '\n' ? at + 1 : !strncmp(at, "\\n", 2) ? at + 2 : NULL;
    const char *end = message ? strstr(message, "<|im_end|>") : NULL;
    if (!end || !is_one_literal(message, end, quote)) continue; /* the message is computed */
    char *text = copy_literal(message, end);
    weft_status status = text ? add_turn(r, "system", text) : WEFT_ENOMEM;
    weft_free(text);
    return status;
  }
  return WEFT_OK;
}

static weft_status render_chatml(rendering *r, const char *template, const weft_chat_message *messages, size_t n) {
  weft_status status = starts_with_system(messages, n) ? WEFT_OK : add_default_system(r, template);
  if (!status) status = add_turns(r, messages, n);
  return status ? status : begin_turn(r, "assistant");
}

/* ---- Llama 3 ---- */

/* From 3.1 on there is always a system turn, which starts with two dates.  Where the template would ask the clock for
 * today's, it is the one that the template has in case there is no clock: a prompt does not change overnight. */
static weft_status add_dated_system(rendering *r, const char *template, const char *cutoff, const char *system) {
  static const char DATE[] = "date_string = \"";
  const char *date = strstr(template, DATE);
  weft_status status = begin_turn(r, "system");
  if (!status) status = add_literal_from(r, template, cutoff);
  if (!status) status = add_text(r, "Today Date: ");
  if (!status && date) status = add_literal_from(r, template, date + strlen(DATE));
  if (!status) status = add_text(r, "\n\n");
  return status ? status : end_turn(r, system);
}

static weft_status render_llama3(rendering *r, const char *template, const weft_chat_message *messages, size_t n) {
  const char *cutoff = strstr(template, "Cutting Knowledge Date: ");
  weft_status status = WEFT_OK;
  if (cutoff) {
    size_t n_system = starts_with_system(messages, n);
    status = add_dated_system(r, template, cutoff, n_system ? messages[0].content : "");
    messages += n_system;
    n -= n_system;
  }
  if (!status) status = add_turns(r, messages, n);
  return status ? status : begin_turn(r, "assistant");
}

/* ---- Gemma ---- */

/* Such templates refuse conversations in any other order. */
static weft_status check_alternation(const weft_chat_message *messages, size_t n) {
  for (size_t i = 0; i < n; i++) {
    bool is_user = !strcmp(messages[i].role, "user");
    if (is_user != (i % 2 == 0))
      return weft__error(WEFT_EINVAL,
                         "chat: turn %zu is of '%s', but with this model every other turn is the user's, the first too "
                         "(put the messages in such an order)",
                         i + 1, messages[i].role);
  }
  return WEFT_OK;
}

/* What a system message says comes first in the user's turn, and behind it an empty line unless the template says
 * otherwise: there have been versions with a line break. */
static weft_status add_user_prefix(rendering *r, const char *template, const char *system) {
  static const char PREFIX[] = "first_user_prefix = messages[0]['content'] + '";
  const char *at = strstr(template, PREFIX);
  weft_status status = add_literal(r, system, strlen(system));
  if (status) return status;
  return at ? add_literal_from(r, template, at + strlen(PREFIX)) : add_text(r, "\n\n");
}

static weft_status render_gemma(rendering *r, const char *template, const weft_chat_message *messages, size_t n) {
  const char *system = NULL;
  if (starts_with_system(messages, n)) {
    if (strstr(template, "System role not supported"))
      return weft__error(WEFT_EINVAL, "chat: System role not supported by this model (leave the system message out)");
    system = messages[0].content;
    messages++;
    n--;
  }
  weft_status status = check_alternation(messages, n);
  for (size_t i = 0; i < n && !status; i++) {
    status = begin_turn(r, !strcmp(messages[i].role, "assistant") ? "model" : messages[i].role);
    if (!status && i == 0 && system) status = add_user_prefix(r, template, system);
    if (!status) status = end_turn(r, messages[i].content);
  }
  return status ? status : begin_turn(r, "model");
}

/* ---- formats ---- */

static const chat_format formats[] = {
    {"Llama 3",
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     "<|start_header_id|>",
     "<|end_header_id|>\n\n",
     "<|eot_id|>",
     true,
     render_llama3},
    {"Gemma", {"<start_of_turn>", "<end_of_turn>"}, "<start_of_turn>", "\n", "<end_of_turn>\n", true, render_gemma},
    {"ChatML", {"<|im_start|>", "<|im_end|>"}, "<|im_start|>", "\n", "<|im_end|>\n", false, render_chatml},
};

static bool has_marks(const chat_format *format, const char *template, const weft_tokenizer *tokenizer) {
  for (int i = 0; i < MAX_MARKS && format->marks[i]; i++)
    if (!strstr(template, format->marks[i]) ||
        !weft_tokenizer_is_special(tokenizer, weft_tokenizer_find(tokenizer, format->marks[i])))
      return false;
  return true;
}

static weft_status find_format(const weft_model *model, const chat_format **format) {
  const char *path = weft_gguf_path(model->gguf);
  if (!model->chat_template)
    return weft__error(WEFT_EUNSUPPORTED, "%s: the model has no chat template (use --raw for a plain prompt)", path);
  for (size_t i = 0; i < WEFT_COUNT(formats); i++) {
    *format = &formats[i];
    if (has_marks(*format, model->chat_template, model->tokenizer)) return WEFT_OK;
  }
  return weft__error(WEFT_EUNSUPPORTED,
                     "%s: the model's chat template is not one that weft knows: ChatML, Llama 3, Gemma (use --raw and "
                     "write out the turns in the prompt)",
                     path);
}

/* Where the template writes it, the beginning-of-text token is there even if the tokenizer would not add it; encoding
 * makes sure that it is there once. */
static weft_status add_bos(rendering *r, const weft_model *model) {
  size_t n;
  const char *bos = weft_tokenizer_piece(model->tokenizer, weft_tokenizer_bos(model->tokenizer), &n);
  return bos && strstr(model->chat_template, "bos_token") ? weft__bytes_add(&r->text, bos, n) : WEFT_OK;
}

weft_status weft_model_apply_chat(const weft_model *model, const weft_chat_message *messages, size_t n_messages,
                                  int32_t **ids, size_t *n_ids) {
  rendering r = {0};
  weft_status status = find_format(model, &r.format);
  if (!status) status = add_bos(&r, model);
  if (!status) status = r.format->render(&r, model->chat_template, messages, n_messages);
  if (!status)
    status = weft_tokenizer_encode(model->tokenizer, r.text.data, r.text.n, 0,
                                   (const weft_text_span *)(const void *)r.spans.data,
                                   r.spans.n / sizeof(weft_text_span), ids, n_ids);
  weft__bytes_clear(&r.text);
  weft__bytes_clear(&r.spans);
  return status;
}
